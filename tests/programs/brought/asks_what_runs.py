"""Asks Ray's state API from within a task, as Ray Train's own actors do."""

import ray
from ray.util.state import list_nodes


@ray.remote
def nodes():
    return len(list_nodes())


ray.init()
print(f"{ray.get(nodes.remote())} nodes")
