"""Prints how many nodes the cluster has, with a plain ray.init."""

import ray

context = ray.init()
print(f"{len(ray.nodes())} nodes")
