"""Training in the body of a `RayCluster` whose head only SSH reaches, with Ray Train and torch.

The program has the shape of Sematic's example: a cluster, a TorchTrainer in its block, the result.
"""

import far_head
from ssh_server import needs_sshd

from sunspot import RayCluster

pytestmark = needs_sshd

WORKERS = 2


def training():
    """The function that each worker runs. Nested: Ray Client takes it by value, not by module."""

    def train(config):
        import ray.train.torch
        import torch

        model = ray.train.torch.prepare_model(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=config["rate"])
        inputs, loss = torch.ones(8, 1), torch.tensor(1.0)
        for _ in range(20):
            loss = ((model(inputs) - 3 * inputs) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        world = ray.train.get_context().get_world_size()
        with open(config["out"], "a") as out:  # noqa: PTH123 - a worker of Ray's runs this
            out.write(f"{world} {loss.item() < 0.1}\n")
        ray.train.report({"loss": loss.item()})

    return train


def test_a_trainer_runs_in_the_block(tmp_path, tmp_path_factory, monkeypatch):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    out = tmp_path / "out"
    with (
        far_head.head(tmp_path_factory.mktemp("head"), cpus=4) as head,
        far_head.project(head, tmp_path, monkeypatch),
        RayCluster.from_stack("far"),
    ):
        trainer = TorchTrainer(
            training(),
            train_loop_config={"rate": 0.1, "out": str(out)},
            scaling_config=ScalingConfig(num_workers=WORKERS),
            run_config=RunConfig(storage_path=str(tmp_path / "results")),
        )
        assert trainer.fit().error is None
    assert out.read_text().splitlines() == [f"{WORKERS} True"] * WORKERS
