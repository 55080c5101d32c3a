"""Fits a line with Ray Train on two GPUs."""

import tempfile

import ray.train
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset


def train_a_worker(config):
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, 3 * x), batch_size=16))
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(5):
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        metrics = {"loss": loss.item(), "device": str(ray.train.torch.get_device())}
        with tempfile.TemporaryDirectory() as folder:
            torch.save({"epoch": epoch}, f"{folder}/state.pt")
            is_first = ray.train.get_context().get_world_rank() == 0
            checkpoint = Checkpoint.from_directory(folder) if is_first else None
            ray.train.report(metrics, checkpoint=checkpoint)


trainer = TorchTrainer(
    train_a_worker,
    train_loop_config={"lr": 0.3},
    scaling_config=ScalingConfig(num_workers=2, use_gpu=True),
    run_config=RunConfig(storage_path="/tmp/brought-trains-on-gpus"),
)
result = trainer.fit()
print(f"loss {result.metrics['loss']:.4f} on {result.metrics['device']}")
