"""Tries its task on a small Ray of its own, as test suites do, whatever else runs."""

import ray

ray.init(address="local", num_cpus=3)


@ray.remote
def square(x):
    return x * x


print(ray.get(square.remote(4)), "on", int(ray.cluster_resources()["CPU"]), "CPUs of its own")
