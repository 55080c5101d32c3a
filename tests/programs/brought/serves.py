"""An application whose two replicas answer with the node that they are on, after a little work."""

import asyncio

import ray
from ray import serve

VERSION = "one"


@serve.deployment(
    num_replicas=2,
    max_ongoing_requests=100,
    ray_actor_options={"num_cpus": 0.4, "label_selector": {"ray.io/market-type": "spot"}},
)
class Where:
    async def __call__(self, _request):
        await asyncio.sleep(0.01)
        return {"node": ray.get_runtime_context().get_node_id(), "version": VERSION}


app = Where.bind()
