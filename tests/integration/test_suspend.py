"""`sunspot suspend` and `start` of a real cluster: what Ray still knows when it is back."""

from __future__ import annotations

from harness import FOREVER, Sunspot, what_is_left
from waiting import wait_for

NAME = "solo"


def test_a_suspended_cluster_comes_back_with_its_jobs_and_detached_actors(sunspot: Sunspot):
    sunspot.ok("up", NAME)
    try:
        folder = sunspot.folder(NAME)
        (sunspot.project / "counter.py").write_text(COUNTER)
        counts = ("submit", "--stack", NAME, "--", "python", "counter.py")
        assert "counted 1" in sunspot.ok(*counts)
        sunspot.ok("submit", "--stack", NAME, "--name", "endless", "--detach", "--", *FOREVER)
        wait_for("the job to begin", lambda: "begun" in sunspot.client(NAME).logs("endless"))
        before = sunspot.target.handle(NAME)

        sunspot.ok("suspend", NAME)
        assert folder.processes() == []
        assert "is suspended" in sunspot.ok("status", NAME)

        sunspot.ok("start", NAME)
        assert sunspot.target.handle(NAME) == before
        assert [node.name for node in sunspot.target.nodes(NAME)] == ["head"]
        statuses = [job.status for job in sunspot.client(NAME).list()]
        assert sorted(statuses) == ["STOPPED", "SUCCEEDED"]
        assert "begun" in sunspot.ok("logs", "--stack", NAME, "endless")
        # The actor is there, and begins anew: its state was in the memory of its process.
        assert "counted 1, found" in sunspot.ok(*counts)
        sunspot.ok("suspend", NAME)
    finally:
        sunspot.ok("down", NAME)
    assert what_is_left(folder) == []


COUNTER = """
import ray

ray.init(namespace="kept", logging_level="ERROR")


@ray.remote(num_cpus=0, max_restarts=-1)
class Counter:
    count = 0

    def more(self):
        self.count += 1
        return self.count


try:
    counter, found = ray.get_actor("counter"), ", found"
except ValueError:
    counter, found = Counter.options(name="counter", lifetime="detached").remote(), ""
print(f"counted {ray.get(counter.more.remote())}{found}")
"""
