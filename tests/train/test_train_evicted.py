"""A node goes away with 60 s notice while train.py runs; without a word: tests/real/compose."""

from __future__ import annotations

from itertools import pairwise

from training import EPOCH_PICTURES, ONE_A_NODE, Training, restarts

# A quick machine trains two a second, and a notice is seen some seconds after it was given.
EPOCHS = 6
TWO = ("--workers", "1:2", *ONE_A_NODE, "--epochs", str(EPOCHS))


def every_picture_of_every_epoch(training: Training, epochs: int) -> bool:
    seen = {(b.epoch, p) for b in training.batches() for p in range(b.first, b.last)}
    # The last batch of an epoch may leave out fewer pictures than there are workers.
    return all(
        len({p for e, p in seen if e == epoch}) >= EPOCH_PICTURES - 1 for epoch in range(epochs)
    )


def test_a_drained_node_costs_no_work(training: Training):
    with training.started(*training.tiny(*TWO)):
        training.wait_for_batch(epoch=1, number=2)
        training.drain(training.working_node())
        assert training.wait_for_end() == "SUCCEEDED", training.log()
    log = training.log()
    assert "announced: saved after" in log
    assert "before the deadline" in log

    result = training.result()
    first, second, *grown = result["attempts"]
    assert first["workers"] == 2
    assert all(b["workers"] > a["workers"] for a, b in pairwise([second, *grown]))
    assert result["evictions"] == 1
    assert f"saved after {second['from']['steps']} steps" in log
    # A group that grows costs what docs/workloads.md says, and the one after the notice may.
    broken = restarts(training.batches())
    assert all(after.workers > before.workers for before, after in broken), log + str(broken)
    assert every_picture_of_every_epoch(training, EPOCHS)
