"""Starts a Ray of its own, apart from any cluster, as tests and examples do."""

import ray


@ray.remote
def double(number):
    return 2 * number


ray.init(address="local", num_cpus=1)
print(sum(ray.get([double.remote(n) for n in range(4)])), "on", len(ray.nodes()), "node of its own")
ray.shutdown()
