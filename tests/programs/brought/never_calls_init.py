"""Uses Ray without ray.init, which the first task does then."""

import ray


@ray.remote
def where():
    return ray.get_runtime_context().get_node_id()


ray.get([where.remote() for _ in range(4)])
print(f"{len(ray.nodes())} nodes")
