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
        "RuntimeError: Attempting to deserialize object on a CUDA device but there is none",
    ],
)
def test_a_program_that_found_no_gpu_is_told_what_runs_on_both(line):
    (hint,) = hints.of_failure(f"Traceback (most recent call last):\n{line}\n")
    assert "accelerator='auto'" in hint
    assert "get_device()" in hint


def test_a_missing_module_is_named_too():
    (hint,) = hints.of_failure("ModuleNotFoundError: No module named 'emoji'")
    assert "--pip emoji" in hint


@pytest.mark.parametrize("what", ["num_cpus and num_gpus", "resources", "object_store_memory"])
def test_a_ray_init_with_a_size_is_told_that_the_cluster_has_one(what):
    line = f"ValueError: When connecting to an existing cluster, {what} must not be provided."
    (hint,) = hints.of_failure(f"Traceback (most recent call last):\n{line}\n")
    assert "remove num_cpus" in hint


def test_a_program_that_asks_its_user_is_told_how_a_job_gets_values():
    log = "name?\nTraceback (most recent call last):\nEOFError: EOF when reading a line\n"
    (hint,) = hints.of_failure(log)
    assert "--env" in hint
    assert hints.of_failure("EOFError: Compressed file ended") == []


def test_a_ray_of_the_programs_own_is_told_how_it_runs():
    log = (
        "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.\n"
        "OSError: Failed to download runtime_env file package gcs://_ray_pkg_0cdd.zip from the GCS"
    )
    (hint,) = hints.of_failure(log)
    assert "env -u RAY_JOB_CONFIG_JSON_ENV_VAR" in hint


def test_a_module_in_py_modules_is_told_to_be_a_path():
    last = "TypeError: cannot pickle 'module' object\n"
    (hint,) = hints.of_failure(f"    runtime_env = _merge_runtime_env(\n    ...\n{last}")
    assert "py_modules" in hint
    assert hints.of_failure(last) == []


def test_another_failure_calls_for_no_hint():
    assert hints.of_failure("ValueError: gpu") == []
