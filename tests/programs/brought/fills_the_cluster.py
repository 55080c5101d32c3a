"""Actors that hold every CPU while tasks wait, until the program ends them."""

import time

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
time.sleep(25)
for holder in holders:
    ray.kill(holder)
print(sum(ray.get(waiting)), "tasks ran")
