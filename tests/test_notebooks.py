"""`sunspot notebook`: JupyterLab with the cluster's settings (a short stand-in for JupyterLab)."""

import json
import os
import subprocess
import sys

import pytest
from local_stacks import WORKERS, stack, write

from sunspot import notebooks
from sunspot.errors import UsageError
from sunspot.node.notebook import ENCRYPTED
from sunspot.node.processes import Process
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

JUPYTERLAB = """
import json, os, sys
print(json.dumps({"arguments": sys.argv[1:], "environment": dict(os.environ)}))
sys.exit(5)
"""
KERNELS = """
class KernelSpecManager:
    def get_all_specs(self):
        specs = {specs!r}
        return {{name: {{"spec": spec}} for name, spec in specs.items()}}
"""


@pytest.fixture
def jupyter(tmp_path):
    """The folder of a JupyterLab that prints what it was started with, and its kernels."""
    site = tmp_path / "site"
    for package in ("jupyterlab", "jupyter_client"):
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text("")
    (site / "jupyterlab" / "__main__.py").write_text(JUPYTERLAB)

    def offer(specs):
        (site / "jupyter_client" / "kernelspec.py").write_text(KERNELS.format(specs=specs))
        return site

    return offer


@pytest.fixture
def run(tmp_path):
    """Runs `sunspot notebook` with a cluster "dev" whose records say that it is up."""
    clusters = LocalTarget(tmp_path / "state" / "clusters").clusters
    folder = write(clusters, stack(WORKERS), address="[::ffff:127.0.0.1]:6379", ready_at=1.0)
    folder.record_process("head", Process.current())

    def run(*arguments, site=None, **environment):
        path = [str(site)] if site else []
        path += filter(None, [os.environ.get("PYTHONPATH")])
        return subprocess.run(
            [sys.executable, "-P", "-m", "sunspot.cli", "notebook", *arguments],
            cwd=tmp_path,
            env=os.environ
            | {
                STATE_DIRECTORY_VARIABLE: str(tmp_path / "state"),
                "PYTHONPATH": os.pathsep.join(path),
                **environment,
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_jupyterlab_gets_the_clusters_settings_and_its_own_arguments(run, jupyter):
    done = run("dev", "--", "--no-browser", site=jupyter({}), RAY_AUTH_TOKEN="another's")
    assert done.returncode == 5, done.stderr  # JupyterLab's own
    started = json.loads(done.stdout)
    assert started["arguments"] == ["--ip=127.0.0.1", ENCRYPTED, "--no-browser"]
    environment = started["environment"]
    assert environment["RAY_ADDRESS"] == "[::ffff:127.0.0.1]:6379"
    assert environment["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_TOKEN" not in environment
    assert "6379" in done.stderr


def test_a_kernel_without_ray_is_named_before_jupyterlab_starts(run, jupyter, tmp_path):
    specs = {
        "python3": {"language": "python", "argv": [sys.executable, "-m", "ipykernel"]},
        "native": {"language": "python", "argv": ["python", "-m", "ipykernel_launcher"]},
        "wrapped": {"language": "python", "argv": ["/bin/sh", "start-kernel", "{connection_file}"]},
        "bare": {"language": "python", "argv": [str(tmp_path / "python3.11")]},
        "ir": {"language": "R", "argv": ["R"]},
    }
    # Jupyter starts the kernel "python" with its own interpreter, whatever the PATH has.
    done = run(site=jupyter(specs), PATH=str(bare(tmp_path, "python").parent))
    assert done.returncode == 5
    assert [line.split("'")[1] for line in done.stderr.splitlines() if "no Ray" in line] == ["bare"]


def bare(folder, name):
    """An interpreter without Ray."""
    program = folder / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    program.chmod(0o755)
    return program


def test_an_interpreter_without_ray_is_told_from_one_with_it(tmp_path):
    assert not notebooks._has_ray(str(bare(tmp_path, "python3.9")))
    assert not notebooks._has_ray(str(tmp_path / "python-gone"))
    assert notebooks._has_ray(sys.executable)


def test_a_module_among_the_notebooks_is_not_taken_for_one_of_jupyterlabs(run, jupyter, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    done = run("dev", site=jupyter({}))
    assert done.returncode == 5, done.stderr


def test_without_jupyterlab_the_command_that_installs_it_is_said(monkeypatch):
    monkeypatch.setattr(notebooks.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"-m pip install jupyterlab"):
        notebooks.check_installed()


def test_without_a_cluster_it_says_how_to_start_one(run, jupyter):
    done = run("other", site=jupyter({}))
    assert done.returncode == 1
    assert "sunspot up other" in done.stderr
    assert done.stdout == ""
