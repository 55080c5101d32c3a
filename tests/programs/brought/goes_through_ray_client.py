"""Prints how many nodes the cluster has, through the Ray Client server that it is given."""

import sys

import ray

ray.init(sys.argv[1])
print(f"{len(ray.nodes())} nodes")
