"""Calls a workload, or a function of one, in a process of its own and without a cluster.

Their modules' names are too common to be imported here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from training import DEADLINE_S, ROOT


def evaluate(expression: str, *modules: str) -> Any:
    """The value of an expression over the workloads' modules, by way of JSON."""
    code = f"import json, sys, {', '.join(modules)}; json.dump({expression}, sys.stdout)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "workloads")},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


REFUSE = """
import contextlib, io, json, sys, {name}
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            {name}.main(arguments)
            code = 0
        except SystemExit as end:
            code = end.code
    answers.append([code, out.getvalue(), err.getvalue()])
json.dump(answers, sys.stdout)
"""


def check_refusals(name: str, cases: Sequence[tuple[Sequence[str], str]]) -> None:
    """Fail unless the workload ends with 2, saying so, for all arguments, and asks Ray nothing.

    One process for all of them: importing torch takes longer than the rest.
    """
    done = subprocess.run(
        [sys.executable, "-c", REFUSE.format(name=name)],
        input=json.dumps([list(arguments) for arguments, _ in cases]),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "workloads")},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    for (arguments, told), (code, out, err) in zip(cases, answers, strict=True):
        assert code == 2, (arguments, out, err)
        assert told in err, (arguments, err)
        assert "Ray" not in out, (arguments, out)
