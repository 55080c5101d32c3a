"""Uses each NVIDIA GPU once, as a CUDA program would, and prints a line for each that works.

A list of GPUs (`nvidia-smi --list-gpus`) proves less: it needs neither CUDA's library nor
/dev/nvidia-uvm, and it names a GPU on which no program can start. gpus.sh runs this file in Ray's
image, which need not have more than Python.

Source: NVIDIA's "CUDA Driver API".
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

LIBRARY = "libcuda.so.1"  # the driver's own, which CDI puts into the container

NAME_BYTES = 256
PATTERN = 0x5A
BLOCK_BYTES = 1 << 20


class CudaError(Exception):
    """A GPU, or CUDA itself, does not work; the message names the call and CUDA's error."""


def main() -> int:
    """Prints `GPU 0: NAME` for each GPU that works; 0 if all do, otherwise 1."""
    try:
        for line in used(load()):
            print(line, flush=True)
    except CudaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def load() -> Any:
    """The driver's library.

    Raises:
        CudaError: it is not there.
    """
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise CudaError(f"CUDA cannot be loaded: {error}") from error


def used(cuda: Any) -> Iterator[str]:
    """A line for each GPU, once it has stored a block of memory and returned it.

    Raises:
        CudaError: CUDA does not start, or one of the GPUs does not work.
    """
    count = ctypes.c_int()
    _call(cuda, "cuInit", 0)
    _call(cuda, "cuDeviceGetCount", ctypes.byref(count))
    for number in range(count.value):
        yield f"GPU {number}: {_use(cuda, number)}"


def _use(cuda: Any, number: int) -> str:
    """The name of the GPU. Its context ends with the process."""
    device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    name, back = ctypes.create_string_buffer(NAME_BYTES), ctypes.create_string_buffer(BLOCK_BYTES)
    size = ctypes.c_size_t(BLOCK_BYTES)
    gpu = f" of GPU {number}"
    _call(cuda, "cuDeviceGet", ctypes.byref(device), number, of=gpu)
    _call(cuda, "cuDeviceGetName", name, NAME_BYTES, device, of=gpu)
    _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device, of=gpu)
    _call(cuda, "cuCtxSetCurrent", context, of=gpu)
    _call(cuda, "cuMemAlloc_v2", ctypes.byref(block), size, of=gpu)
    _call(cuda, "cuMemsetD8_v2", block, ctypes.c_ubyte(PATTERN), size, of=gpu)
    _call(cuda, "cuMemcpyDtoH_v2", back, block, size, of=gpu)
    if back.raw != bytes([PATTERN]) * BLOCK_BYTES:
        raise CudaError(f"GPU {number} returns other bytes than it was given")
    return name.value.decode(errors="replace")


def _call(cuda: Any, function: str, *arguments: Any, of: str = "") -> None:
    status = getattr(cuda, function)(*arguments)
    if status != 0:
        raise CudaError(f"{function}{of}: {_error_name(cuda, status)} ({status})")


def _error_name(cuda: Any, status: int) -> str:
    name = ctypes.c_char_p()
    known = cuda.cuGetErrorName(status, ctypes.byref(name)) == 0 and name.value is not None
    return name.value.decode() if known and name.value else "unknown error"


if __name__ == "__main__":
    sys.exit(main())
