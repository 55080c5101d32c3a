"""Ray Train on GPUs that are only numbers, with stand-ins for torch and for Train's workers.

tests/train trains with the real ones.
"""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from sunspot.node.local import logical_gpus


@dataclass(frozen=True)
class Config:
    backend: str | None = None
    timeout_s: int = 1800


class Workers:
    """A worker group: what each of them asked for, and whether each finds a device."""

    def __init__(self, gpus, *devices):
        self.gpus, self.devices, self.calls = gpus, devices, []

    def get_resources_per_worker(self):
        return {"CPU": 1, "GPU": self.gpus}

    def execute(self, function):
        self.calls.append(function)
        return list(self.devices)


@pytest.fixture
def start():
    """Starts the backend of a changed `ray.train.torch.config`; returns what it starts with."""
    seen = []

    class Backend:
        def on_start(self, _worker_group, backend_config):
            seen.append(backend_config)

    config = SimpleNamespace(_TorchBackend=Backend)
    logical_gpus.use_gloo(config)

    def start(workers, given):
        Backend().on_start(workers, given)
        return seen.pop()

    return start


@pytest.mark.parametrize("devices", [(False, False), (True, False)])
@pytest.mark.parametrize("backend", [None, "nccl", "cpu:gloo,cuda:nccl"])
def test_without_devices_gloo_takes_the_place_of_nccl_and_the_rest_stays(start, devices, backend):
    workers = Workers(1, *devices)
    given = Config(backend=backend, timeout_s=7)
    assert start(workers, given) == Config(backend="gloo", timeout_s=7)
    assert workers.calls == [logical_gpus.has_device]


def test_what_was_chosen_with_devices_or_for_the_cpu_is_left_to_ray(start):
    assert start(Workers(1, True, True), Config()) == Config()
    assert start(Workers(1, True), Config(backend="nccl")) == Config(backend="nccl")
    assert start(Workers(0, False), Config()) == Config()
    assert start(Workers(1, False), Config(backend="mpi")) == Config(backend="mpi")


@pytest.mark.parametrize(("available", "expected"), [(True, ["cuda:0"]), (False, ["cpu"])])
def test_a_worker_without_a_device_has_the_cpu(available, expected):
    class Manager:
        def is_available(self):
            return available

        def get_devices(self):
            return ["cuda:0"]

    torch = SimpleNamespace(device=lambda name: name)
    logical_gpus.use_the_cpu(SimpleNamespace(CUDATorchDeviceManager=Manager, torch=torch))
    assert Manager().get_devices() == expected


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A module `late_one.inner` that nothing has imported yet."""
    folder = tmp_path / "late_one"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "inner.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in ("late_one", "late_one.inner"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("package")
def test_a_module_is_changed_when_it_is_imported_and_no_other():
    changed = []
    sys.meta_path.insert(0, logical_gpus.Changing({"late_one.inner": changed.append}))
    importlib.import_module("late_one")
    assert changed == []
    inner = importlib.import_module("late_one.inner")
    assert changed == [inner]
    assert inner.VALUE == 1
    assert inner.__file__ is not None


def test_what_is_installed_waits_for_the_modules_that_ray_has(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    logical_gpus.install()
    (finder,) = (one for one in sys.meta_path if isinstance(one, logical_gpus.Changing))
    assert set(finder._changes) == {
        "ray.train.torch.config",
        "ray.air._internal.device_manager.nvidia_gpu",
    }
    root = importlib.util.find_spec("ray")
    assert root is not None
    assert root.submodule_search_locations is not None
    (folder,) = root.submodule_search_locations
    for name in finder._changes:
        assert (Path(folder).parent / f"{name.replace('.', '/')}.py").is_file()
