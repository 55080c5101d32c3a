"""Ray Train on GPUs that are only numbers: gloo in the place of NCCL, the CPU in that of a device.

Ray's workers call this before anything else where a cluster's GPUs are logical (preload.py,
RAY_preload_python_modules). Train takes NCCL and "cuda:0" for every worker that has GPUs in Ray's
count (ray/train/v2/torch/torch_trainer.py, ray/train/torch/config.py,
ray/air/_internal/device_manager/nvidia_gpu.py, 2.60). Where torch finds a device, nothing is
changed.
"""

from __future__ import annotations

import dataclasses
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

log = logging.getLogger("ray.train")

Change = Callable[[Any], None]


def has_device() -> bool:
    """Whether torch finds a GPU in this process."""
    import torch  # pyright: ignore[reportMissingImports] - comes with the extra "train"

    return torch.cuda.is_available()


def use_gloo(config: Any) -> None:
    """Changes ray.train.torch.config: without devices, gloo takes the place of NCCL.

    Whether the program or Train V2's trainer chose NCCL cannot be told here: the trainer writes its
    default into the program's config.
    """
    start = config._TorchBackend.on_start

    def on_start(backend: Any, worker_group: Any, backend_config: Any) -> None:
        asks_for_gpus = worker_group.get_resources_per_worker().get("GPU", 0) > 0
        wants_nccl = asks_for_gpus and "nccl" in (backend_config.backend or "nccl")
        if wants_nccl and not all(worker_group.execute(has_device)):
            log.warning("The GPUs of this cluster are numbers: training on the CPU, with gloo.")
            backend_config = dataclasses.replace(backend_config, backend="gloo")
        start(backend, worker_group, backend_config)

    config._TorchBackend.on_start = on_start


def use_the_cpu(nvidia_gpu: Any) -> None:
    """Changes Ray's device manager for CUDA: without a device, the worker's device is the CPU."""
    devices = nvidia_gpu.CUDATorchDeviceManager.get_devices

    def get_devices(manager: Any) -> list[Any]:
        if manager.is_available():
            return devices(manager)
        return [nvidia_gpu.torch.device("cpu")]

    nvidia_gpu.CUDATorchDeviceManager.get_devices = get_devices


class Changing(importlib.abc.MetaPathFinder):
    """Changes modules when they are imported, so that a worker imports torch only if it needs it.

    Args:
        changes: by the module's name.
    """

    def __init__(self, changes: dict[str, Change]) -> None:
        self._changes = dict(changes)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        change = self._changes.pop(fullname, None)
        spec = None if change is None else importlib.util.find_spec(fullname)
        if change is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Makes this process change what Ray imports later."""
    changes: dict[str, Change] = {
        "ray.train.torch.config": use_gloo,
        "ray.air._internal.device_manager.nvidia_gpu": use_the_cpu,
    }
    sys.meta_path.insert(0, Changing(changes))
