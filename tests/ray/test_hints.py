"""What is said at the end of a job that failed."""

import pytest

from sunspot.ray import hints
from sunspot.ray.feasibility import NodeType
from sunspot.ray.resources import GIB


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


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ray.tune.error.TuneError: Improper 'run' - not string nor trainable.", "V2_ENABLED=0"),
        (
            (
                "DeprecationWarning: `ray.train.RunConfig(stop)` is deprecated. See this issue: "
                "https://github.com/ray-project/ray/issues/49454."
            ),
            "V2_ENABLED=0",
        ),
        ("pyarrow.lib.ArrowInvalid: URI has empty scheme: 'results'", "absolute path"),
    ],
)
def test_habits_of_older_programs_are_told_what_to_do(line, told):
    (hint,) = hints.of_failure(line)
    assert told in hint


def test_a_warning_of_ray_train_is_not_why_a_program_failed():
    link = "https://github.com/ray-project/ray/issues/49454"
    assert (
        hints.of_failure(f"x.py:8: RayDeprecationWarning: `train.report`: {link}\nKeyError") == []
    )


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ("{GPU: 1, CPU: 1}", "GPU: asked 1, the nearest node type (group 'w') has 0"),
        ("{memory: 5.36871e+11, CPU: 1}", "memory: asked 500 GiB, the nearest node type"),
        ("{CPU: 1, my slot: 2}", "my slot: asked 2"),
    ],
)
def test_what_no_node_can_hold_names_the_nearest_node_type_and_the_fix(shape, told):
    types = [NodeType(name="group 'w'", resources={"CPU": 4, "memory": 8 * GIB})]
    # As the GCS of Ray 2.60 words it.
    log = (
        "ray.exceptions.ActorUnschedulableError: The actor is not schedulable: Tasks or actors "
        f"with resource shapes [{shape}] failed to schedule because there are not enough "
        "resources for the tasks or actors on the whole cluster."
    )
    (hint,) = hints.of_failure(f"{log}\n{log}", types)
    assert told in hint
    assert "larger nodes" in hint
    assert hints.of_failure(log.replace(shape, "{CPU: 1}"), types) == []


def test_another_failure_calls_for_no_hint():
    assert hints.of_failure("ValueError: gpu") == []
