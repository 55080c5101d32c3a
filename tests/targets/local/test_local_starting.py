"""Waiting for the launcher of a local cluster's nodes."""

import os
import subprocess
from types import SimpleNamespace
from typing import cast

import pytest

from sunspot.errors import SunspotError
from sunspot.targets.local import starting


@pytest.mark.parametrize(
    ("printed", "step"),
    [(b"", "starting the launcher"), (b'{"event": "node", "name": "w-0"}\n', "node w-0")],
)
def test_a_timeout_names_the_step_that_it_was_in(printed, step):
    output, launcher = os.pipe()
    with os.fdopen(output, "rb") as stdout, os.fdopen(launcher, "wb", 0) as events:
        events.write(printed)
        process = cast("subprocess.Popen[bytes]", SimpleNamespace(stdout=stdout))
        with pytest.raises(SunspotError, match=f"the last step was: {step}$"):
            list(starting._events(process, 0.01))
