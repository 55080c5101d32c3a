"""What is said at the end of a job that failed."""

import pytest

from sunspot.ray import hints


@pytest.mark.parametrize(
    "line",
    [
        "MisconfigurationException: No supported gpu backend found!",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have one",
        "RuntimeError: No CUDA GPUs are available",
        "AssertionError: Torch not compiled with CUDA enabled",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
    ],
)
def test_a_program_that_found_no_gpu_is_told_what_runs_on_both(line):
    (hint,) = hints.of_failure(f"Traceback (most recent call last):\n{line}\n")
    assert "accelerator='auto'" in hint
    assert "get_device()" in hint


def test_a_missing_module_is_named_too():
    (hint,) = hints.of_failure("ModuleNotFoundError: No module named 'emoji'")
    assert "--pip emoji" in hint


def test_another_failure_calls_for_no_hint():
    assert hints.of_failure("ValueError: gpu") == []
