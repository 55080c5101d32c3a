"""Actors that hold every CPU while tasks wait, until some time after the file GO_ON is there."""

import os
import time
from pathlib import Path

import ray


@ray.remote(num_cpus=1)
class Holder:
    def ready(self):
        return True


@ray.remote
def task():
    return 1


ray.init()
holders = [Holder.remote() for _ in range(int(ray.cluster_resources()["CPU"]))]
ray.get([holder.ready.remote() for holder in holders])
waiting = [task.remote() for _ in range(5)]
print("all are taken", flush=True)
while not Path(os.environ["GO_ON"]).exists():
    time.sleep(0.1)
time.sleep(10)
for holder in holders:
    ray.kill(holder)
print(sum(ray.get(waiting)), "tasks ran")
