"""Both scripts run to the end on a cluster and learn the same."""

from __future__ import annotations

import json

from training import Training, repeated

CHANCE = 1 / 11
EPOCHS = 6
# Runs of the same script with other seeds lie this far apart.
NOISE = 0.2


def test_both_scripts_learn_and_learn_the_same(training: Training):
    plain = training.folder / "plain.json"
    command = ["python", "workloads/plain_train.py", "--epochs", str(EPOCHS), "--out", str(plain)]
    with training.started(*command, flags=("--num-gpus", "1"), name="plain"):
        done = training.submit(*training.arguments("--epochs", str(EPOCHS)))
        assert training.wait_for_end("plain") == "SUCCEEDED", training.log("plain")
    assert done.returncode == 0, done.stdout + done.stderr
    alone = json.loads(plain.read_text())
    assert alone["accuracy"] > 3 * CHANCE
    assert "Evaluation accuracy" in done.stdout
    under_train = training.result()
    assert under_train["accuracy"] > 3 * CHANCE
    assert abs(under_train["accuracy"] - alone["accuracy"]) < NOISE
    assert under_train["steps"] == alone["steps"]
    assert repeated(training.batches()) == 0
