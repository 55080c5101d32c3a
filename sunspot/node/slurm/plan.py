"""The plan of a cluster in a Slurm job: `plan.json` in the job's folder, which all nodes share.

<folder>/plan.json     Plan
<folder>/node.zip      this code
<folder>/command       what runs on the head, each word with a zero byte behind it
<folder>/token         the cluster's authentication token, mode 0600
<folder>/cluster.json  {}, then only the GCS's address, then Published: how to reach the cluster
<folder>/logs/NODE.log what `ray start` printed
<folder>/notice-JOB    a mark: the job JOB ends soon (made by the batch script)
<folder>/requeue       a mark: the job should begin again (made by the head)
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

HEAD = "head"
CLUSTER_FILE = "cluster.json"

# How long before a job's end what runs in it is told to end, and killed. Slurm's own SIGTERM comes
# at the end, when a job can no longer be put back into the queue.
TERM_MARGIN_S, KILL_MARGIN_S = 20.0, 10.0
MIN_NOTICE_S = 30

# The exit code that says that something is wrong that would be wrong again.
WRONG = 2
FAILED = "failed-"


def drain_message(job: int) -> str:
    """Why a node is drained; by "drained" `sunspot status` knows that it was not lost."""
    return f"drained: the Slurm job {job} ends"


@dataclass(frozen=True, kw_only=True)
class Group:
    """The nodes of one group; "head" has one.

    Attributes:
        name: the group's name.
        nodes: how many nodes of it the job starts with.
        cpus: the CPUs of each that Ray counts.
        gpus: the GPUs of each.
        flags: the flags of `ray start`, without those that only the node knows.
        environment: the variables that Ray reads.
        ports: the ports by name, each with the flag or the variable that sets it.
    """

    name: str
    nodes: int
    cpus: int
    gpus: int
    flags: list[str]
    environment: dict[str, str]
    ports: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every node of the cluster knows in advance.

    Attributes:
        name: the stack's name.
        ray_version: the version of Ray that each node must have.
        groups: the head's group first.
        interface: the network interface, by its name or by an address block (CIDR) that it is in;
            None for the one that leads out.
        scratch: the folder of each node itself for sockets and objects.
        join_s: how long the nodes may take to join, in seconds.
        notice_s: how long before the job's end Slurm gives notice, in seconds.
        requeue: whether a command that the notice cut off begins again.
    """

    name: str
    ray_version: str
    groups: list[Group]
    interface: str | None
    scratch: str
    join_s: int
    notice_s: int
    requeue: bool

    def to_json(self) -> str:
        """The text of plan.json."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def read(cls, path: Path) -> Plan:
        """The plan in a file that `to_json` made."""
        fields = json.loads(path.read_text())
        return cls(**fields | {"groups": [Group(**group) for group in fields["groups"]]})

    def group(self, name: str) -> Group:
        """The group of that name."""
        return next(group for group in self.groups if group.name == name)


@dataclass(frozen=True, kw_only=True)
class Published:
    """How to reach a cluster; each address is HOST:PORT.

    Attributes:
        gcs: the GCS.
        dashboard: the dashboard and the job API.
        client: the server for drivers elsewhere (ray://).
        node: Slurm's name of the head's node.
    """

    gcs: str
    dashboard: str
    client: str
    node: str

    def to_json(self) -> str:
        """The text of cluster.json."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Published | None:
        """What is in cluster.json; None while the head has not written it."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None


def announced_gcs(text: str) -> str:
    """The address of the GCS in cluster.json: the head has seen that it is its own; "" before."""
    try:
        return json.loads(text).get("gcs", "")
    except ValueError:  # it is being written
        return ""
