"""What to say at the end of a job that failed for a reason that many programs have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sunspot.ray import demand, packages
from sunspot.ray.feasibility import NodeType, can_hold, missing

# What torch, NCCL and Lightning say where there is no device (torch 2.x, Lightning 2.x).
_NO_DEVICE = re.compile(
    r"No supported gpu backend found"
    r"|Found no NVIDIA driver on your system"
    r"|No CUDA GPUs are available"
    r"|Torch not compiled with CUDA enabled"
    r"|ProcessGroupNCCL is only supported with GPUs"
    r"|deserialize object on a CUDA device"
)

# ray.init, where it connects to a cluster (worker.py, 2.60).
_SIZED = re.compile(
    r"When connecting to an existing cluster, (?:num_cpus and num_gpus|\w+) must not be provided"
)
_NO_INPUT = re.compile(r"^EOFError: EOF when reading a line", re.MULTILINE)
# A Ray that a job starts gets the job's environment, but has other files (packaging.py, 2.60).
_OTHER_FILES = re.compile(r"Failed to download runtime_env file package gcs://")
# A job's environment is merged with the program's by a deep copy (runtime_env.py, 2.60).
_MODULE_OBJECT = re.compile(r"_merge_runtime_env.*cannot pickle 'module' object", re.DOTALL)

# Ray Train's first version, which 2.60 has only on demand (train/constants.py, tune/experiment.py).
_TRAIN_V1 = re.compile(
    r"(?<!Ray)DeprecationWarning: [^\n]*ray-project/ray/issues/49454"
    r"|TuneError: Improper 'run' - not string nor trainable"
)
# pyarrow, of a path that begins with neither a slash nor a scheme.
_RELATIVE = re.compile(r"ArrowInvalid: URI has empty scheme: ")

# What tasks and actors fail with that no node can hold (ray/start.py, early exit): their shapes, as
# "[{GPU: 1, CPU: 1}]", amounts with six digits (2.60).
_UNSCHEDULABLE = re.compile(r"not schedulable: .*? resource shapes \[(.*?)\] failed to schedule")
_SHAPE = re.compile(r"\{([^{}]*)\}")
_AMOUNT = re.compile(r"([^:,{}\s][^:,{}]*): ([\d.e+-]+)")

# What to do about each.
_HINTS = {
    _NO_DEVICE: (
        "the program found no GPU where it ran. On a cluster of this machine GPUs are only "
        "numbers: what should run here and on real GPUs says accelerator='auto' in Lightning, or "
        "takes ray.train.torch.get_device(), or 'cuda' if torch.cuda.is_available() else 'cpu'. "
        "Where there are GPUs, a job's own process has one if it asks: sunspot submit --num-gpus 1"
    ),
    _SIZED: (
        "the program's ray.init says how large Ray is to be, but a cluster has the size that its "
        "stack file says: remove num_cpus, num_gpus and the like from ray.init, or pass them only "
        "where no cluster is"
    ),
    _NO_INPUT: (
        "the program reads from a terminal, which a job does not have: give it what it asks for as "
        "an argument, after --, or as a variable: sunspot submit --env NAME=VALUE"
    ),
    _OTHER_FILES: (
        "a Ray that the program starts for itself, as by ray.init(address='local') or `ray start`, "
        "takes over the job's files and does not find them. Write ray.init(), which uses the "
        "cluster; or, to have a Ray beside it: "
        "sunspot submit -- env -u RAY_JOB_CONFIG_JSON_ENV_VAR python PROGRAM"
    ),
    _TRAIN_V1: (
        "the program uses Ray Train or Tune in a way of older versions, such as a Tuner over a "
        "TorchTrainer. To run it as it is: sunspot submit --env RAY_TRAIN_V2_ENABLED=0 ...; what "
        "to change otherwise: https://github.com/ray-project/ray/issues/49454"
    ),
    _RELATIVE: (
        "Ray takes no relative storage_path. Give an absolute path that every node has, such as "
        "one in your home folder for a cluster of this machine, or a storage that all nodes reach; "
        "what is written into a job's own folder is lost with the job's files"
    ),
    _MODULE_OBJECT: (
        "in a job, py_modules takes no imported modules: write the path of the module's folder, "
        "runtime_env={'py_modules': ['path/of/module']}, or leave it out, since modules in the "
        "working directory go along with the job"
    ),
}


def of_failure(log: str, types: Sequence[NodeType] = ()) -> list[str]:
    """The hints that the end of a failed job's log calls for, a sentence or two each.

    Args:
        log: the end of the log.
        types: the node types that the cluster may have.
    """
    module = packages.missing_module(log)
    found = [hint for pattern, hint in _HINTS.items() if pattern.search(log)]
    return [*([module] if module else []), *_never(log, types), *found]


def of_application(reason: str, types: Sequence[NodeType]) -> list[str]:
    """The same for an application of Ray Serve that failed for this reason."""
    module = packages.missing_module(reason, packages.OF_APPLICATION)
    return [*([module] if module else []), *_never(reason, types)]


def _never(log: str, types: Sequence[NodeType]) -> Iterator[str]:
    """What Ray says that it cannot place and no node of these types can hold, each shape once."""
    shapes = [_SHAPE.findall(listed) for listed in _UNSCHEDULABLE.findall(log)]
    for shape in dict.fromkeys(one for several in shapes for one in several):
        bundle = {name: float(number) for name, number in _AMOUNT.findall(shape)}
        if types and bundle and not can_hold(bundle, types):
            yield (
                f"no node of this cluster can ever hold {demand.shape([bundle])}. "
                f"{missing(bundle, types)}. {demand.REMEDY}"
            )
