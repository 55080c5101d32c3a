"""The line that a job's shell gets, as shells take it."""

import subprocess
import sys

import pytest

from sunspot.ray.entrypoint import shell_line, shown

PID = "import os; print(os.getpid())"
VALUE = "import os; print(os.environ['FIRST'])"


def run(*words, **more):
    command = ["/bin/sh", "-c", shell_line(words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more)


def test_the_shell_becomes_the_program():
    process = run(sys.executable, "-c", PID)
    assert process.communicate()[0] == f"{process.pid}\n"


def test_variables_before_the_program_are_its_own():
    assert run("FIRST=a b", sys.executable, "-c", VALUE).communicate()[0] == "a b\n"


def test_what_only_the_shell_does_is_left_to_it(tmp_path):
    process = run("cd", str(tmp_path))
    process.communicate()
    assert process.returncode == 0


def test_a_program_that_does_not_exist_is_127():
    process = run("no-such-program", stderr=subprocess.DEVNULL)
    process.communicate()
    assert process.returncode == 127


@pytest.mark.parametrize("words", [["python", "x.py", "a b"], ["A=1", "python"], ["cd", "x"]])
def test_people_see_what_they_submitted(words):
    assert shown(shell_line(words)) == subprocess.list2cmdline(words).replace('"', "'")
