"""Computes on a GPU, and only there."""

import ray
import torch


@ray.remote(num_gpus=1)
def product():
    return torch.ones(2, 2, device="cuda").sum().item()


print(ray.get(product.remote()))
