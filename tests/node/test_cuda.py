"""What a node's GPUs are asked before it joins, on a stand-in of CUDA's driver library.

The library's own functions are called where there is one: on a machine with a GPU.
"""

import ctypes
from typing import Any

import pytest

from sunspot.node.azure import cuda
from sunspot.node.azure.cuda import CudaError, used


class Gpus:
    """A driver with GPUs of these names; `fails` maps a function's name to its status."""

    def __init__(self, *names: str, fails: dict[str, int] | None = None) -> None:
        self.names = names
        self.fails = fails or {}
        self.calls: list[str] = []
        self.memory = b""
        self.forgets = False

    def __getattr__(self, function: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append(function)
            status = self.fails.get(function, 0)
            if status == 0:
                getattr(self, f"_{function.removesuffix('_v2')}", lambda *_: None)(*arguments)
            return status

        if function.startswith("_"):
            raise AttributeError(function)
        return call

    def _cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802 - CUDA's name, as those below
        count._obj.value = len(self.names)

    def _cuDeviceGet(self, device: Any, number: int) -> None:  # noqa: N802
        device._obj.value = number

    def _cuDeviceGetName(self, name: Any, size: int, device: Any) -> None:  # noqa: N802
        assert size > len(self.names[device.value])
        name.value = self.names[device.value].encode()

    def _cuMemsetD8(self, _: Any, value: Any, size: Any) -> None:  # noqa: N802
        self.memory = bytes([0 if self.forgets else value.value]) * size.value

    def _cuMemcpyDtoH(self, target: Any, _: Any, size: Any) -> None:  # noqa: N802
        ctypes.memmove(target, self.memory, size.value)

    def _cuGetErrorName(self, status: int, name: Any) -> None:  # noqa: N802
        name._obj.value = f"CUDA_ERROR_{status}".encode()


def test_each_gpu_stores_a_block_and_returns_it():
    driver = Gpus("Tesla T4", "Tesla T4")
    assert list(used(driver)) == ["GPU 0: Tesla T4", "GPU 1: Tesla T4"]
    assert driver.calls.count("cuDevicePrimaryCtxRetain") == 2
    assert driver.calls.count("cuMemcpyDtoH_v2") == 2


def test_no_gpu_no_line():
    assert list(used(Gpus())) == []


@pytest.mark.parametrize(
    # An NVSwitch without its manager; a file of CDI's without nvidia-uvm; memory in use.
    ("function", "status"),
    [("cuInit", 802), ("cuDevicePrimaryCtxRetain", 999), ("cuMemAlloc_v2", 2)],
)
def test_a_gpu_that_lists_itself_and_does_not_work_is_named(function: str, status: int):
    driver = Gpus("Tesla T4", fails={function: status})
    with pytest.raises(CudaError, match=rf"{function}.*CUDA_ERROR_{status} \({status}\)"):
        list(used(driver))


def test_memory_that_forgets_is_a_fault():
    driver = Gpus("Tesla T4")
    driver.forgets = True
    with pytest.raises(CudaError, match="GPU 0 returns other bytes"):
        list(used(driver))


def test_a_container_without_cudas_library_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda-not-here.so.1")
    assert cuda.main() == 1
    assert "libcuda-not-here.so.1" in capsys.readouterr().err


def test_a_real_gpu(capsys: pytest.CaptureFixture[str]):
    try:
        ctypes.CDLL(cuda.LIBRARY)
    except OSError:
        pytest.skip("there is no NVIDIA driver here")
    assert cuda.main() == 0
    assert capsys.readouterr().out.startswith("GPU 0: ")
