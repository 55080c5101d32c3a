"""Azure's VM sizes: what each has and costs, and the cheapest that meets a need.

The table is `sizes.csv` beside this file; its header says where the numbers come from.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from sunspot.errors import UsageError

PREFIX = "Standard_"

# Azure's "VM sizes naming conventions": family, vCPUs, features, accelerator, version.
_NAME = re.compile(
    rf"({PREFIX})?(?P<body>[A-Z]+\d+(-\d+)?(?P<features>[a-z]*)(_\w+)*)", re.IGNORECASE
)
_ARM, _RDMA = "p", "r"
_NEED_GRID = frozenset({"A10"})

# Ray's names of NVIDIA's GPUs are the catalogue's; that of this GPU differs (Ray 2.60).
_ACCELERATOR_TYPES = {"MI300X": "AMD-Instinct-MI300X-OAM"}


@dataclass(frozen=True, kw_only=True)
class Price:
    """USD an hour for one machine; None where it is not known."""

    on_demand: float | None = None
    spot: float | None = None

    def usd(self, *, spot: bool) -> float | None:
        """What a machine costs an hour; an unknown spot price is taken to be the on-demand one."""
        return self.spot if spot and self.spot is not None else self.on_demand


@dataclass(frozen=True, kw_only=True)
class VmSize:
    """One VM size. Counts and memory are those of the whole machine.

    `memory_gib`, `gpu_memory_gib` and `temp_gib` are GiB (2**30 bytes); `temp_gib` is 0 where the
    size has no temporary disk. `quota_family` is None where Azure's name of it is not known, and
    `gpu_name` also where the kind of the GPUs is not. `by_needs` says that `cheapest` may choose
    the size. `listed` is False for a size that the catalogue does not have. `retired` is the day
    (ISO) on which Azure withdrew the size, and `successor` the size to use instead; both are None
    for a size that is still offered.
    """

    name: str
    vcpus: int
    memory_gib: float
    gpu_count: int
    gpu_name: str | None
    gpu_memory_gib: float
    temp_gib: float
    price: Price
    infiniband: bool
    quota_family: str | None
    by_needs: bool = False
    listed: bool = True
    retired: str | None = None
    successor: str | None = None

    @property
    def accelerator_type(self) -> str | None:
        """What Ray calls the GPU, as in the resource `accelerator_type:T4`; None without one."""
        return _ACCELERATOR_TYPES.get(self.gpu_name, self.gpu_name) if self.gpu_name else None

    @property
    def has_amd_gpus(self) -> bool:
        """Whether its GPUs are AMD's, which need ROCm; NVIDIA's need CUDA."""
        return self.gpu_name is not None and self.gpu_name.startswith("MI")

    @property
    def is_arm(self) -> bool:
        """Whether its processors are Arm's, by its name."""
        return _ARM in _features(self.name)

    @property
    def needs_grid_driver(self) -> bool:
        """Whether its GPU needs NVIDIA's GRID driver instead of the data centre's.

        Azure, "Install NVIDIA GPU drivers on N-series VMs running Linux": NVads A10 v5.
        """
        return self.gpu_name in _NEED_GRID

    def __str__(self) -> str:
        gpus = "1 GPU" if self.gpu_count == 1 else f"{self.gpu_count} GPUs"
        return f"{self.name}: {self.vcpus} vCPU, {self.memory_gib:g} GiB, {gpus}"


def load() -> tuple[VmSize, ...]:
    """Every size that Azure still offers, in the order of the catalogue."""
    sizes = (_size(key) for key in _rows())
    return tuple(size for size in sizes if size.retired is None)


def source() -> dict[str, str]:
    """Where the catalogue's numbers come from: shapes, prices, region, currency, date, quota."""
    notes = (line[1:].partition(": ") for line in _lines() if line.startswith("#"))
    return {key.strip(): text.strip() for key, _, text in notes if key.strip() in _NOTES}


def find(name: str) -> VmSize | None:
    """The size of this name, in any case, with or without `Standard_`; None if it is not listed.

    Raises:
        UsageError: the size is retired; the message has its successor.
    """
    key = _key(name)
    if key not in _rows():
        return None
    size = _size(key)
    if size.retired is not None:
        raise UsageError(
            f"{size.name} was retired by Azure on {size.retired}: use {size.successor}"
        )
    return size


def get(name: str) -> VmSize:
    """The size of this name, as `find` finds it.

    Raises:
        UsageError: the name is unknown (the message has the closest known ones), or the size is
            retired (the message has its successor).
    """
    size = find(name)
    if size is None:
        raise UsageError(f"{name!r} is not a VM size in Sunspot's catalogue: {_closest(name)}")
    return size


def unlisted(name: str, *, vcpus: float, memory_gib: float, gpu_count: int) -> VmSize:
    """A size that the catalogue does not have, of this shape; the rest follows from its name.

    It is taken to have no temporary disk and, unless its name says MI, NVIDIA's GPUs.

    Raises:
        UsageError: the name is not one of a VM size, or `vcpus` is not whole.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(
            f"{name!r} is not the name of a VM size, such as Standard_D4s_v5: {_closest(name)}"
        )
    if vcpus != int(vcpus):
        raise UsageError(f"cpu {vcpus:g} is not whole: give all vCPUs of {name}")
    amd = re.search(r"_(MI\d+X)(_|$)", name, re.IGNORECASE)
    return VmSize(
        name=PREFIX + match["body"],
        vcpus=int(vcpus),
        memory_gib=memory_gib,
        gpu_count=gpu_count,
        gpu_name=amd[1].upper() if amd and gpu_count else None,
        gpu_memory_gib=0.0,
        temp_gib=0.0,
        price=Price(),
        infiniband=_RDMA in match["features"].lower(),
        quota_family=None,
        listed=False,
    )


def cheapest(cpu: float, memory_gib: float, gpu_count: int = 0) -> VmSize:
    """The cheapest size, by its on-demand price, with at least these vCPUs, GiB and GPUs.

    Only sizes `by_needs` are chosen. Without `gpu_count`, one with GPUs is chosen only if no other
    fits; one without a known price is chosen only if no priced one fits.

    Raises:
        UsageError: no size fits; the message names the nearest size and what it lacks.
    """
    fitting = [size for size in _by_needs() if not _shortage(size, cpu, memory_gib, gpu_count)]
    if not fitting:
        raise UsageError(_nothing_fits(cpu, memory_gib, gpu_count))
    return min(fitting, key=lambda size: (size.gpu_count > 0 and gpu_count == 0, *_cost(size)))


_NOTES = frozenset({"shapes", "prices", "region", "currency", "date", "quota"})


def _cost(size: VmSize) -> tuple[bool, float]:
    return size.price.on_demand is None, size.price.on_demand or 0.0


def _shortage(size: VmSize, cpu: float, memory_gib: float, gpu_count: int) -> dict[str, float]:
    """What the size lacks, by unit; empty when it fits."""
    needs = {"vCPU": cpu, "GiB": memory_gib, "GPUs": gpu_count}
    holds = {"vCPU": size.vcpus, "GiB": size.memory_gib, "GPUs": size.gpu_count}
    return {unit: need - holds[unit] for unit, need in needs.items() if need > holds[unit]}


def _nothing_fits(cpu: float, memory_gib: float, gpu_count: int) -> str:
    needs = {"vCPU": cpu, "GiB": memory_gib, "GPUs": gpu_count}

    def distance(size: VmSize) -> tuple[float, bool, float]:
        # Shares of the need, so that a missing GPU weighs more than a missing GiB.
        short = _shortage(size, cpu, memory_gib, gpu_count)
        return sum(lack / needs[unit] for unit, lack in short.items()), *_cost(size)

    nearest = min(_by_needs(), key=distance)
    lack = _shortage(nearest, cpu, memory_gib, gpu_count)
    short = " and ".join(_amount(number, unit) for unit, number in lack.items())
    asked = ", ".join(_amount(number, unit) for unit, number in needs.items())
    return (
        f"No VM size that Sunspot chooses has {asked}: nearest is {nearest}; short of {short}. Ask "
        "for less per node, or name a vm_size (`sunspot sizes` lists them)"
    )


def _amount(number: float, unit: str) -> str:
    return "1 GPU" if unit == "GPUs" and number == 1 else f"{number:g} {unit}"


def _closest(name: str) -> str:
    shorts = {_key(size.name): size.name for size in load()}
    near = difflib.get_close_matches(_key(name), shorts, n=3, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(shorts[key] for key in near) + "?"
    return f"`sunspot sizes` lists the {len(shorts)} that it has"


def _key(name: str) -> str:
    return name.lower().removeprefix(PREFIX.lower())


def _features(name: str) -> str:
    match = _NAME.fullmatch(name)
    return match["features"].lower() if match else ""


@cache
def _lines() -> tuple[str, ...]:
    text = resources.files("sunspot.catalog").joinpath("sizes.csv").read_text(encoding="utf-8")
    return tuple(text.splitlines())


@cache
def _rows() -> Mapping[str, tuple[str, ...]]:
    """Every row, the retired ones too, by its name in lower case without `Standard_`.

    No field has a comma or quotes, so that splitting is enough, which takes a tenth of the time.
    """
    rows = (tuple(line.split(",")) for line in _lines() if line.startswith(PREFIX))
    return MappingProxyType({_key(row[0]): row for row in rows})


@cache
def _columns() -> tuple[str, ...]:
    return tuple(next(line for line in _lines() if not line.startswith("#")).split(","))


@cache
def _size(key: str) -> VmSize:
    row = dict(zip(_columns(), _rows()[key], strict=True))
    return VmSize(
        name=row["name"],
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gib"]),
        gpu_count=int(row["gpu_count"]),
        gpu_name=row["gpu_name"] or None,
        gpu_memory_gib=float(row["gpu_memory_gib"]),
        temp_gib=float(row["temp_gib"]),
        price=Price(on_demand=_usd(row["on_demand_usd"]), spot=_usd(row["spot_usd"])),
        infiniband=_YES_NO[row["infiniband"]],
        quota_family=row["quota_family"] or None,
        by_needs=_YES_NO[row["by_needs"]],
        retired=row["retired"] or None,
        successor=row["successor"] or None,
    )


_YES_NO = MappingProxyType({"yes": True, "no": False})


def _by_needs() -> tuple[VmSize, ...]:
    return tuple(size for size in load() if size.by_needs)


def _usd(text: str) -> float | None:
    return float(text) if text else None
