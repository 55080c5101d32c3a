"""Waits for a placement group as a training run makes it: four workers with a GPU each."""

import ray
from ray.util.placement_group import placement_group

ray.init()
group = placement_group([{"CPU": 1, "GPU": 1}] * 4, name="training")
print("waiting", flush=True)
ray.get(group.ready())
