"""Why a runtime environment could not be set up."""

import pytest

from sunspot.ray.jobs import Job

NO_ENVIRONMENT = "runtime_env setup failed: Failed to set up runtime environment."


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            [
                "Looking in links: /wheels",
                "WARNING: Retrying: Name or service not known",
                *["ERROR: Could not find lightgbm"] * 2,
            ],
            "WARNING: Retrying: Name or service not known; ERROR: Could not find lightgbm",
        ),
        (["Traceback (most recent call last):", "OSError: no package"], "OSError: no package"),
    ],
    ids=["pip", "another"],
)
def test_an_environment_that_cannot_be_set_up_says_why(said, cause):
    message = "\n    ".join([NO_ENVIRONMENT, "Could not create the actor.", *said, ""])
    failed = Job(
        id="j",
        ray_id="",
        status="FAILED",
        entrypoint="x",
        message=message,
        exit_code=None,
        started=None,
        ended=None,
    )
    assert failed.reason == f"{NO_ENVIRONMENT} {cause}"
