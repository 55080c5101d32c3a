"""A stack file's settings for Slurm: where its jobs run, and what a site calls things."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sunspot.errors import UsageError
from sunspot.node.slurm.plan import MIN_NOTICE_S
from sunspot.settings import Settings
from sunspot.spec_values import Config, Count, Text

# This target's name in sunspot/registry.py.
TARGET = "slurm"

DEFAULT_FOLDER = "~/.sunspot/slurm"
DEFAULT_SCRATCH = "/tmp"  # noqa: S108 - each node makes a folder of its own in it
DEFAULT_NOTICE_S = 120
DEFAULT_QUEUE_TIMEOUT_S = 3600

# Sunspot itself gives these; another value would break the job (sbatch(1)).
OWN_OPTIONS = frozenset(
    {
        *("--array", "--cpus-per-task", "--job-name", "--nodes", "--ntasks", "--ntasks-per-node"),
        *("--error", "--het-group", "--no-kill", "--no-requeue", "--open-mode", "--output"),
        *("--parsable", "--requeue", "--signal", "--test-only", "--wait", "--wrap"),
    }
)
# Those that have a key of their own.
KEYED_OPTIONS = frozenset({"--account", "--gres", "--mem", "--partition", "--qos", "--time"})

# Of the commands only sbatch would go there.
_CLUSTER_OPTIONS = frozenset({"--cluster", "--clusters"})
# What sbatch does not take beside --mem.
_MEMORY_OPTIONS = ("--mem-per-cpu", "--mem-per-gpu")

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,@+-]*")
_GRES = re.compile(r"[A-Za-z0-9_]+(:[A-Za-z0-9_.-]+)?")
_FOLDER = re.compile(r"(/|~/|\$[A-Za-z_][A-Za-z0-9_]*/)[A-Za-z0-9_./+@-]*")
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a name in Slurm: use letters, digits and hyphens, no spaces"
        )
    return text


def _gres(text: str) -> str:
    if not _GRES.fullmatch(text) or text.rpartition(":")[2].isdecimal():
        raise UsageError(
            f"{text!r} is not what a site calls its GPUs: write it without a number, such as gpu "
            "or gpu:a100 (`sinfo -o %G` shows it); the number is the node's gpu_count"
        )
    return text


def _quoted_time(given: Any) -> Any:
    if isinstance(given, int | float) and not isinstance(given, bool):
        # YAML 1.1 reads 1:00:00 as the number 3600.
        raise UsageError(f'{given} is not text: write it in quotes, such as "1:00:00"')
    return given


def seconds(text: str) -> int:
    """Slurm's notation of a time as seconds: "90" is minutes, "1-0" a day (sbatch(1), --time).

    Raises:
        UsageError: it is none.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is not a time in Slurm's notation: write hours:minutes:seconds, such as "
            '"1:00:00", or days-hours, such as "2-12"'
        )
    first, second, third = (int(found[name] or 0) for name in ("first", "second", "third"))
    if found["days"] is not None:
        return int(found["days"]) * 86_400 + first * 3600 + second * 60 + third
    if found["third"] is not None:
        return first * 3600 + second * 60 + third
    return first * 60 + second


def _time(text: str) -> str:
    if seconds(text) == 0:
        raise UsageError(f"{text!r} is no time at all: give the hours that the job may take")
    return text


def _option(text: str) -> str:
    name = text.partition("=")[0].strip()
    if not text.startswith("--") or "\n" in text:
        raise UsageError(
            f"{text!r} is not an option of sbatch in its long form: write it as in "
            "--constraint=a100, one a line"
        )
    if name in OWN_OPTIONS:
        raise UsageError(f"{name} is set by Sunspot: leave it out")
    if name in _CLUSTER_OPTIONS:
        raise UsageError(
            f"{text} would send the job where no other command looks for it: leave it out, and set "
            "the variable SLURM_CLUSTERS, which all of Slurm's commands heed"
        )
    if name in KEYED_OPTIONS:
        raise UsageError(f"{name} has a place of its own in the stack file: leave it out here")
    return text


def _line(text: str) -> str:
    if "\n" in text:
        raise UsageError(f"{text!r} has several lines: write each as an item of its own")
    return text


def _folder(text: str) -> str:
    if not _FOLDER.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a folder from the root on: begin it with /, ~/ or a variable such as "
            "$WORK/, and use no spaces or quotes"
        )
    return text


def in_shell(folder: str) -> str:
    """A folder of the settings as it stands within double quotes in a shell."""
    if folder.startswith("~/"):
        return f"${{HOME:?}}{folder[1:]}"
    # A variable that is not set must not lead to a folder of the root.
    return re.sub(r"^\$(\w+)", r"${\1:?}", folder)


def _interface(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:/@-]+", text):
        raise UsageError(
            f"{text!r} is neither a network interface such as ib0 nor an address block such as "
            "10.0.0.0/16"
        )
    return text


def _login_host(text: str) -> str:
    # ssh takes what begins with a hyphen for an option, which may run a command.
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]*", text):
        raise UsageError(f"{text!r} is not a host: write USER@HOST, or a name of ~/.ssh/config")
    return text


Word = Annotated[Text, AfterValidator(_word)]
Gres = Annotated[Text, AfterValidator(_gres)]
Time = Annotated[Text, AfterValidator(_time), BeforeValidator(_quoted_time)]
Option = Annotated[Text, AfterValidator(_option)]
Line = Annotated[Text, AfterValidator(_line)]


class Place(Config, frozen=True):
    """Where the nodes of a group run; None is what the cluster's own settings say."""

    partition: Word | None = Field(default=None, description="partition of Slurm")
    account: Word | None = Field(default=None, description="account that is charged")
    qos: Word | None = Field(default=None, description="quality of service")
    gres: Gres | None = Field(
        default=None,
        description="what the site calls a GPU, without a number, such as gpu:a100",
    )
    extra: tuple[Option, ...] = Field(
        default=(),
        description="further options of sbatch, such as --constraint=a100",
    )

    def over(self, other: "Place") -> "Place":
        """This place where it says something, otherwise the other one; the options of both."""
        return Place(
            partition=self.partition or other.partition,
            account=self.account or other.account,
            qos=self.qos or other.qos,
            gres=self.gres or other.gres,
            extra=(*other.extra, *self.extra),
        )


class Container(Config, frozen=True):
    """The container that each node's Ray runs in. Its image must have Ray and Python."""

    kind: Literal["apptainer", "enroot"] = Field(
        description="apptainer, or enroot (through pyxis, which gives srun --container-image)"
    )
    image: Line = Field(description="image, such as /shared/ray.sif or docker://rayproject/ray")
    binds: tuple[Line, ...] = Field(
        default=(), description="folders of the node that are seen inside, as SOURCE:DESTINATION"
    )
    flags: tuple[Line, ...] = Field(
        default=(), description="further flags of `apptainer exec`, or of srun, such as --nv"
    )


class Job(Place, frozen=True):
    """What Slurm is told of a cluster, and what its nodes need."""

    groups: dict[Text, Place] = Field(
        default={}, description="other places of single groups, by the group's name or `head`"
    )
    time: Time | None = Field(
        default=None, description='time limit, such as "1:00:00"; the partition has a default'
    )
    memory: bool = Field(
        default=True,
        strict=True,
        description="whether memory_gb becomes --mem; false where Slurm does not manage memory",
    )
    notice_s: Count = Field(
        default=DEFAULT_NOTICE_S,
        ge=MIN_NOTICE_S,
        le=65_535,
        description="seconds before the time limit when the cluster begins to drain",
    )
    requeue: bool = Field(
        default=False,
        strict=True,
        description="whether a command that was preempted or cut off begins again; it must "
        "continue from its checkpoint by itself",
    )
    setup: tuple[Line, ...] = Field(
        default=(),
        description="lines of shell that each job begins with, such as module load python",
    )
    python: Line = Field(
        default="python3", description="Python with Ray in it, on the nodes or in the container"
    )
    container: Container | None = Field(
        default=None, description="container that the nodes' Ray runs in"
    )
    interface: Annotated[Text, AfterValidator(_interface)] | None = Field(
        default=None,
        description="network interface that the nodes use, by name (ib0) or address block",
    )
    folder: Annotated[Text, AfterValidator(_folder)] = Field(
        default=DEFAULT_FOLDER,
        description="folder for clusters' files and checkpoints; all nodes must share it",
    )
    scratch: Line = Field(
        default=DEFAULT_SCRATCH,
        description="folder of each node itself, for sockets; its path must be short",
    )
    login_host: Annotated[Text, AfterValidator(_login_host)] | None = Field(
        default=None,
        description="USER@HOST of a login node, to which every command goes by SSH",
    )
    queue_timeout_s: Count = Field(
        default=DEFAULT_QUEUE_TIMEOUT_S,
        ge=1,
        description="seconds that `sunspot up` waits in Slurm's queue",
    )

    @model_validator(mode="after")
    def _check_notice(self) -> Self:
        if self.time is not None and self.notice_s >= seconds(self.time):
            raise UsageError(
                f"notice_s {self.notice_s} is not below the time limit {self.time}: lower it, or "
                "raise time"
            )
        return self

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        options = [one for place in (self, *self.groups.values()) for one in place.extra]
        for one in options:
            # sbatch refuses them together (github.com/dask/dask-jobqueue, issue 698).
            if self.memory and one.startswith(_MEMORY_OPTIONS):
                raise UsageError(
                    f"{one} contradicts the --mem that memory_gb becomes: leave it out, or set "
                    "memory: false"
                )
        return self

    def place(self, group: str) -> Place:
        """Where the nodes of a group run."""
        ours = Place(**{name: getattr(self, name) for name in Place.model_fields})
        return self.groups.get(group, Place()).over(ours)


class SlurmSettings(Settings, frozen=True):
    """The settings that only Slurm has."""

    KEYS: ClassVar[Mapping[str, str]] = {"sunspot:slurm": "job"}

    job: Job = Field(default=Job(), description="what Slurm is told of the cluster's jobs")
