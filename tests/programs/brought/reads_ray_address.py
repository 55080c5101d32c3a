"""Prints how many nodes the cluster has whose address is in the environment."""

import os

import ray

ray.init(address=os.environ["RAY_ADDRESS"])
print(f"{len(ray.nodes())} nodes")
