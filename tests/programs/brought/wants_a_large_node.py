"""A task that no node can hold."""

import ray


@ray.remote(num_cpus=64)
def large():
    return 1


ray.init()
print(ray.get(large.remote()))
