"""The lesson of docs/slurm.md, as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from pathlib import Path

from machines.slurm import Slurm
from slurm_project import Project
from waiting import wait_for

import sunspot

REPOSITORY = Path(sunspot.__file__).parents[1]
ANSWER = "[0, 1, 4, 9]"


def blocks() -> list[str]:
    """The indented blocks of the lesson."""
    page = (REPOSITORY / "docs" / "slurm.md").read_text()
    _, _, lesson = page.partition("## The lesson")
    lesson, _, _ = lesson.partition("\n## ")
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", lesson, re.MULTILINE)
    return [textwrap.dedent(one).strip() + "\n" for one in found]


def in_bash(project: Project, text: str) -> str:
    done = subprocess.run(
        ["/bin/bash", "-ec", text],
        cwd=project.project,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_lesson(project: Project, slurm: Slurm):
    found = blocks()
    (stack,) = (one for one in found if one.startswith("config:"))
    (program,) = (one for one in found if one.startswith("import ray"))
    (project.project / "Pulumi.lesson.yaml").write_text(stack)
    (project.project / "lesson.py").write_text(program)
    shutil.copytree(REPOSITORY / "workloads", project.project / "workloads")
    first, store, kept, script = (one for one in found if one.startswith("sunspot "))

    in_bash(project, "sunspot doctor lesson")
    assert ANSWER in in_bash(project, first)
    in_bash(project, store)
    job = in_bash(project, script).split()[-1]
    wait_for("its end", lambda: slurm.state(job) == "COMPLETED", 300)
    assert ANSWER in (project.project / f"sunspot-lesson-{job}.out").read_text()
    assert "lesson is down" in in_bash(project, kept)
    project.wait_until_gone()
