"""What to say at the end of a job that failed for a reason that many programs have."""

from __future__ import annotations

import re

from sunspot.ray import packages

# What torch, NCCL and Lightning say where there is no device (torch 2.x, Lightning 2.x).
_NO_DEVICE = re.compile(
    r"No supported gpu backend found"
    r"|Found no NVIDIA driver on your system"
    r"|No CUDA GPUs are available"
    r"|Torch not compiled with CUDA enabled"
    r"|ProcessGroupNCCL is only supported with GPUs"
    r"|deserialize object on a CUDA device"
)


def of_failure(log: str) -> list[str]:
    """The hints that the end of a failed job's log calls for, a sentence or two each."""
    found = [packages.missing_module(log), _no_device(log)]
    return [hint for hint in found if hint is not None]


def _no_device(log: str) -> str | None:
    if not _NO_DEVICE.search(log):
        return None
    return (
        "the program found no GPU where it ran. On a cluster of this machine GPUs are only "
        "numbers: what should run here and on real GPUs says accelerator='auto' in Lightning, or "
        "takes ray.train.torch.get_device(), or 'cuda' if torch.cuda.is_available() else 'cpu'. "
        "Where there are GPUs, a job's own process has one if it asks: sunspot submit --num-gpus 1"
    )
