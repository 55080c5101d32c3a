"""A node goes away while train.py runs: without a word, or with 30 s notice."""

from __future__ import annotations

from training import EPOCH_PICTURES, ONE_A_NODE, Training, repeated, restarts

TWO = ("--workers", "1:2", *ONE_A_NODE, "--epochs", "3")


def every_picture_of_every_epoch(training: Training, epochs: int) -> bool:
    seen = {(b.epoch, p) for b in training.batches() for p in range(b.first, b.last)}
    # The last batch of an epoch may leave out fewer pictures than there are workers.
    return all(
        len({p for e, p in seen if e == epoch}) >= EPOCH_PICTURES - 1 for epoch in range(epochs)
    )


def test_a_drained_node_costs_no_work(training: Training):
    with training.started(*training.tiny(*TWO)):
        training.wait_for_batch(epoch=1, number=5)
        training.drain(training.working_node())
        assert training.wait_for_end() == "SUCCEEDED", training.log()
    log = training.log()
    assert "announced: saved after" in log
    assert "before the deadline" in log

    result = training.result()
    first, second = result["attempts"]
    assert first["workers"] == 2
    assert result["evictions"] == 1
    assert second["from"]["epoch"] == 1, "it went on from the middle of an epoch"
    assert second["from"]["pictures"] > 0
    assert repeated(training.batches()) == 0
    assert every_picture_of_every_epoch(training, 3)


def test_a_node_that_dies_costs_what_came_after_the_last_checkpoint(training: Training):
    with training.started(*training.tiny(*TWO)):
        training.wait_for_batch(epoch=1, number=5)
        training.kill(training.working_node())
        assert training.wait_for_end() == "SUCCEEDED", training.log()
    first, second = training.result()["attempts"][:2]
    assert first["from"]["epoch"] == 0
    assert (second["from"]["epoch"], second["from"]["pictures"]) == (1, 0)
    [(before, after)] = restarts(training.batches())
    assert before.epoch == after.epoch == 1
    assert after.first == 0
    assert every_picture_of_every_epoch(training, 3)
