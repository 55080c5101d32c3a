"""The workloads as modules of this process: importing torch again takes longer than most tests."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from ray import cloudpickle
from training import DEADLINE_S, ROOT

from sunspot.ray.driver import reload_authentication

STEERING = ("FOOD11_", "AWS_", "AZURE_", "RAY_", "SUNSPOT_")


def module(name: str) -> Any:
    """A workload, or a module beside them; only inside a test, because it may need torch."""
    folder = str(ROOT / "workloads")
    if folder not in sys.path:
        sys.path.append(folder)  # last: their names are common
    return importlib.import_module(name)


def environment(variables: Mapping[str, str] | None) -> dict[str, str]:
    """These variables, and of the caller's those that do not steer a workload."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(STEERING)}
    return kept | dict(variables or {})


@contextlib.contextmanager
def ray_anew() -> Iterator[None]:
    """Let Ray in this process find the cluster that the environment names; disconnect after."""
    import ray

    reload_authentication()
    try:
        yield
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class Answer:
    """How a workload ended, and what it printed."""

    code: object
    out: str
    err: str


def call(name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Answer:
    """Run a workload's main function."""
    workload = module(name)
    out, err, code = io.StringIO(), io.StringIO(), 0
    captured = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    patched = mock.patch.dict(os.environ, environment(env), clear=True)
    with patched, ray_anew(), captured[0], captured[1]:
        # As the main program it would be sent to Ray's workers by itself; they cannot import it.
        cloudpickle.register_pickle_by_value(workload)
        try:
            workload.main(list(arguments))
        except SystemExit as end:
            code = end.code
    return Answer(code, out.getvalue(), err.getvalue())


def run(name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Answer:
    """Run a workload as a program: what its real exit code is."""
    done = subprocess.run(
        [sys.executable, f"workloads/{name}.py", *arguments],
        cwd=ROOT,
        env=environment(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def check_refused(answer: Answer, *told: str) -> None:
    """Fail unless it ended with 2 and said why in one line, before anything was trained."""
    assert answer.code == 2, answer
    [line] = [line for line in answer.err.splitlines() if "error: " in line]
    for words in told:
        assert words in line
    assert "Traceback" not in answer.err
    assert "epoch 1" not in answer.out


def check_refusals(name: str, cases: Sequence[tuple[Sequence[str], str]]) -> None:
    """Fail unless the workload refuses each of the arguments, saying so, and asks Ray nothing."""
    for arguments, told in cases:
        answer = call(name, *arguments)
        check_refused(answer, told)
        assert "Ray" not in answer.out, answer
