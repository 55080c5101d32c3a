"""Prints how many nodes the cluster has that Ray finds."""

import ray

ray.init("auto")
print(f"{len(ray.nodes())} nodes")
