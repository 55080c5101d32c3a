"""A workload of the demo that has run, and the node that its tasks ran on, as Ray tells of it."""

from sunspot import demo
from sunspot.ray.jobs import Job
from sunspot.report import WorkloadResult

NODE = {
    "node_id": "ab",
    "node_name": "workers-0",
    "state": "DEAD",
    "labels": {
        "ray.io/node-group": "workers",
        "ray.io/market-type": "spot",
        "ray.io/node-id": "ab",
    },
}


def finished(result: WorkloadResult) -> demo._Run:
    """The run of `primes` that ended with this result."""
    job = Job(
        id="primes-1",
        ray_id="01000000",
        status="SUCCEEDED",
        entrypoint="python primes.py",
        message="",
        exit_code=0,
        started=1.0,
        ended=2.0,
    )
    return demo._Run(job=job, task="primes", result=result)
