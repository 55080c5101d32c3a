"""One task of a Slurm job: it starts one Ray node, watches it, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from sunspot.node import prctl
from sunspot.node.slurm import process_tree
from sunspot.node.slurm.addresses import BLOCK, AddressError, own_address, worker_block
from sunspot.node.slurm.allocation import Allocation
from sunspot.node.slurm.listeners import TakenError
from sunspot.node.slurm.plan import CLUSTER_FILE, FAILED, HEAD, Group, Plan, Published
from sunspot.node.slurm.ray_node import FOREIGN_VARIABLES, RayNode

# Within Slurm's KillWait, by default 30 s, after which the job gets a SIGKILL.
STOP_GRACE_S = 8.0
# What outlives `ray start` on a worker are Ray's agents, which look for their raylet for seconds.
ORPHANS_S = 1.0
LOG_LINES = 15
# What Ray says where a busy machine's raylet or GCS took too long (ray/_private/node.py, 2.60).
TOO_SLOW = "timed out during startup"
LOCK = ".lock"
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# In the environment of a task that starts its node once more.
AGAIN_VARIABLE = "SUNSPOT_STARTED_AGAIN"

# By which a cluster's processes are told from others; the value is the job's folder.
CLUSTER_VARIABLE = "SUNSPOT_CLUSTER"

# Only for `ray start`, which is a fork of the task and so finds this code in its zip.
START_HOOK = {"RAY_START_HOOK": "sunspot.node.raylet.start_hook"}


class Stopped(Exception):  # noqa: N818 - it is no error
    """Slurm ends the job: it was cancelled, preempted or is over its time limit."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number


class NodeEndedError(Exception):
    """Ray ended on this node; the message has the end of its log."""


class TooSlowError(NodeEndedError):
    """Ray gave up its start, since this machine was too slow."""


class _StartAgain(Exception):  # noqa: N818 - it is no error
    """The node was too slow for the first time."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The task's plan and its part of the job.

    Attributes:
        folder: the job's folder, which all nodes share.
        plan: the cluster's plan.
        group: the group that this node is of.
        has: what Slurm gave.
        address: HOST:PORT of the cluster's GCS.
        joined: whether this job joins the cluster of another one.
    """

    folder: Path
    plan: Plan
    group: Group
    has: Allocation
    address: str
    joined: bool

    @property
    def name(self) -> str:
        """The node's name in Ray."""
        return self.has.name(self.group, joined=self.joined)

    @property
    def log(self) -> Path:
        """What Ray prints on this node."""
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def noticed(self) -> bool:
        """Whether Slurm has told that the job ends soon."""
        return (self.folder / f"notice-{self.has.job}").exists()

    @property
    def head_is_starting(self) -> bool:
        """Whether the head has neither come up nor failed; its GCS may go, and come once more."""
        try:
            published = Published.parse((self.folder / CLUSTER_FILE).read_text())
        except FileNotFoundError:
            return False
        return published is None and not (self.folder / f"{FAILED}{HEAD}").exists()

    def first_port(self) -> int:
        """The first of the node's ports; the head's is the GCS's."""
        if self.group.name == HEAD:
            return int(self.address.rpartition(":")[2])
        # A node of the first job has its number behind those of the groups before.
        before = 0 if self.joined else self._nodes_before()
        return worker_block(self.has.job, before + self.has.task, len(self.group.ports))

    def _nodes_before(self) -> int:
        names = [group.name for group in self.plan.groups]
        return sum(group.nodes for group in self.plan.groups[: names.index(self.group.name)])

    def environment(self) -> dict[str, str]:
        """The variables by which processes of this node use the cluster."""
        return {
            **self.group.environment,
            CLUSTER_VARIABLE: str(self.folder),
            "RAY_AUTH_TOKEN_PATH": str(self.folder / "token"),
            "RAY_CLOUD_INSTANCE_ID": self.name,
            # So that a job's `python` is the one with Ray in it.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def ray_node(self, scratch: Path) -> RayNode:
        """What starts Ray here; `scratch` is an empty folder of this node's own."""
        ip, first = own_address(self.plan.interface), self.first_port()
        settings = self.group.ports.values()
        numbers = dict(zip(settings, range(first, first + BLOCK), strict=False))
        flags = [
            *self.group.flags,
            *self.has.flags(self.group),
            *(f"{name}={number}" for name, number in numbers.items() if name.startswith("--")),
            f"--node-name={self.name}",
            f"--node-ip-address={ip}",
            f"--temp-dir={scratch}",
            f"--dashboard-host={ip}" if self.group.name == HEAD else f"--address={self.address}",
        ]
        variables = {n: str(p) for n, p in numbers.items() if not n.startswith("--")}
        return RayNode(
            name=self.name,
            address=self.address,
            cluster_file=self.folder / CLUSTER_FILE,
            flags=flags,
            environment={**self.environment(), **START_HOOK, **variables},
            log=self.log,
            join_s=self.plan.join_s,
        )


class Node:
    """This node's Ray, while it runs."""

    def __init__(self, task: Task, pid: int) -> None:
        self.task = task
        self._pid: int | None = pid

    @property
    def pid(self) -> int | None:
        """Its process; None once that has ended."""
        return self._pid

    def check(self) -> None:
        """Returns if Ray still runs.

        Raises:
            TooSlowError: it gave up its start.
            NodeEndedError: it does not run for another reason.
        """
        if self._pid is not None and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = None
        if self._pid is None:
            end = "\n".join(_tail(self.task.log))
            error = TooSlowError if TOO_SLOW in end else NodeEndedError
            raise error(f"Ray ended. The end of {self.task.log}:\n{end}")


def run(task: Task, live: Callable[[Node], int]) -> int:
    """Runs a node as long as `live` does; returns the exit code of the task.

    Nothing is left when it returns: no process below this one, no file of the node's own. A node
    that was too slow is started once more, by this process as Slurm started it: Ray's client, which
    it has become meanwhile, does not outlive a fork (`ray start` then hangs, 2.60).
    """
    prctl.adopt_orphans()
    given = dict(os.environ)
    again = os.environ.pop(AGAIN_VARIABLE, "") != ""
    for name in FOREIGN_VARIABLES:
        os.environ.pop(name, None)
    name_amd_gpus(os.environ)
    # Around everything: a second signal must not end the clean-up.
    with _stoppable():
        try:
            with scratch_folder(task) as scratch:
                return _run_in(scratch, task, live, again=again)
        except _StartAgain:
            pass
        # OSError: a full disk, or a folder that is another user's.
        except (NodeEndedError, AddressError, TakenError, OSError) as error:
            return _failed(task, error)
        except Stopped as stopped:
            return stopped.exit_code
    env = {**given, AGAIN_VARIABLE: "1"}
    return os.execve(sys.executable, sys.orig_argv, env)  # noqa: S606 - no shell is wanted


def _failed(task: Task, error: Exception) -> int:
    say(f"node {task.name}: {error}")
    with contextlib.suppress(OSError):  # that disk may be the shared one
        (task.folder / f"{FAILED}{task.name}").touch()
    return 1


def name_amd_gpus(env: MutableMapping[str, str]) -> None:
    """Gives Ray its own name for the list of AMD's GPUs; it ends where it finds only Slurm's.

    The same numbers (slurm.conf's AutoDetect=rsmi sets ROCR_VISIBLE_DEVICES), but not beside it:
    there they would count within it (ray/_private/accelerators/amd_gpu.py, 2.60;
    github.com/lumi-ai-factory/laifs-container-recipes, issues 6 and 13).
    """
    if "ROCR_VISIBLE_DEVICES" in env and "HIP_VISIBLE_DEVICES" not in env:
        env["HIP_VISIBLE_DEVICES"] = env.pop("ROCR_VISIBLE_DEVICES")


def _run_in(scratch: Path, task: Task, live: Callable[[Node], int], *, again: bool) -> int:
    node = None
    try:
        node = Node(task, task.ray_node(scratch).start())
        # From here on this process is a client of the cluster.
        os.environ.update(task.environment())
        return live(node)
    except TooSlowError:
        if again:
            raise
        say(f"node {task.name}: Ray took too long to start on this machine: once more")
        if task.group.name == HEAD:  # so that no worker connects to the GCS that ends now
            (task.folder / CLUSTER_FILE).write_text("{}")
        process_tree.end(None, STOP_GRACE_S, ORPHANS_S)
        raise _StartAgain from None
    finally:
        _ignore_signals()
        # On the head there may also be the job's command, which has the whole time.
        orphans_s = STOP_GRACE_S if task.group.name == HEAD else ORPHANS_S
        pid = None if node is None else node.pid
        if left := process_tree.end(pid, STOP_GRACE_S, orphans_s):
            say(f"node {task.name}: these processes do not end: {left}")


def say(text: str) -> None:
    """Prints a line into the job's output."""
    print(f"sunspot: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def scratch_folder(task: Task) -> Iterator[Path]:
    """An empty folder on this node, with a short path: a socket's has at most 107 bytes.

    It is locked as long as this task lives, and those that a killed one left are removed.
    """
    parent = scratch_parent(task.plan)
    path = _new_folder(parent, f"{task.has.job}-")
    _remove_abandoned(parent)
    with (path / f"{LOCK}-new").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Only now may another task look whether it is held.
        (path / f"{LOCK}-new").rename(path / LOCK)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):
                parent.rmdir()  # only the last node finds it empty


def scratch_parent(plan: Plan) -> Path:
    """The folder of all of this user's nodes on this machine."""
    return Path(plan.scratch) / f"sunspot-{os.getuid()}"


def check_own(folder: Path) -> None:
    """Returns if a folder is this user's own.

    Raises:
        PermissionError: it is another user's, or no folder; a link leads where others want.
        FileNotFoundError: there is none.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(
            f"{folder} is not a folder of this user's own: remove it, or set scratch in "
            "sunspot:slurm"
        )


def _new_folder(parent: Path, prefix: str) -> Path:
    """An empty folder in a folder of this user's own. Raises as `check_own` does."""
    while True:
        with contextlib.suppress(FileExistsError):
            parent.mkdir(mode=0o700, parents=True)
        with contextlib.suppress(FileNotFoundError):  # the last node has just removed the parent
            check_own(parent)
            return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def _remove_abandoned(parent: Path) -> None:
    """Removes the folders that no task holds any longer. A local cluster's have no lock."""
    for lock in parent.glob(f"*/{LOCK}"):
        with contextlib.suppress(OSError), lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Raises `Stopped` in the block when Slurm ends the job."""

    def stop(number: int, _frame: object) -> None:
        _ignore_signals()
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)


def _tail(log: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    return []
