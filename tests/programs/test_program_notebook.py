"""Notebooks on a cluster: one is executed, and `sunspot notebook` starts JupyterLab."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
import requests
from harness import Sunspot
from test_program_addresses import Brought, read_until
from waiting import wait_for

# What CI sets: nothing is skipped, and a test without JupyterLab fails.
NEEDED = "SUNSPOT_TESTS_NEED_NOTEBOOK"
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jupyterlab") is None and not os.environ.get(NEEDED),
    reason="no JupyterLab here: make setup-notebook",
)

DEADLINE_S = 600
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\?token=([0-9a-f]+)")
# What it prints are the texts that the notebook's cells put out.
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300, startup_timeout=300).execute()
for cell in notebook.cells:
    for output in cell.get("outputs", ()):
        print(output.get("text", ""), end="")
"""


def test_a_notebook_runs_unchanged(brought: Brought, drivers_variables: dict[str, str]):
    notebook = brought("counts_nodes.ipynb")
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(notebook)],
        cwd=notebook.parent,
        env=drivers_variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 nodes" in done.stdout
    assert "[0, 1, 4, 9]" in done.stdout


@contextlib.contextmanager
def jupyterlab(sunspot: Sunspot) -> Iterator[tuple[str, dict[str, str], list[str]]]:
    """JupyterLab's address, headers with its token, and what it has said once it has ended."""
    arguments = ("--no-browser", "--allow-root")
    said: list[str] = []
    with sunspot.started("notebook", "programs", "--", *arguments) as jupyter:
        assert jupyter.stderr is not None
        try:
            line = read_until(jupyter.stderr, "/lab?token=")
            found = ADDRESS.search(line)
            assert found is not None, line
            address, token = found.groups()
            yield address, {"Authorization": f"token {token}"}, said
        finally:
            jupyter.send_signal(signal.SIGTERM)
            said += jupyter.communicate(timeout=DEADLINE_S)


@pytest.mark.usefixtures("cluster")
def test_jupyterlab_answers_only_with_its_token_and_ends_with_sigterm(sunspot: Sunspot):
    with jupyterlab(sunspot) as (address, known, said):
        kernels = f"{address}/api/kernels"
        # It prints its address shortly before it listens.
        refused = wait_for(
            "JupyterLab's server",
            lambda: requests.get(kernels, timeout=DEADLINE_S).status_code,
            not_yet=(requests.ConnectionError,),
        )
        assert refused == 403
        assert requests.get(kernels, headers=known, timeout=DEADLINE_S).json() == []
    assert "Traceback" not in "".join(said)


@pytest.mark.usefixtures("cluster")
def test_what_passes_on_a_kernels_ports_is_encrypted(sunspot: Sunspot):
    with jupyterlab(sunspot) as (address, known, _):
        started = wait_for(
            "a kernel",
            lambda: requests.post(
                f"{address}/api/kernels", headers=known, json={}, timeout=DEADLINE_S
            ),
            not_yet=(requests.ConnectionError,),
        )
        assert started.ok, started.text
        runtime = sunspot.home / ".local" / "share" / "jupyter" / "runtime"
        connection = runtime / f"kernel-{started.json()['id']}.json"
        # Without, whoever connects to these ports reads what its cells are and print.
        assert "curve_publickey" in json.loads(connection.read_text())
        assert not connection.stat().st_mode & 0o077
