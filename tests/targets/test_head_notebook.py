"""JupyterLab on a head: a real sshd and the real program there, a short stand-in for JupyterLab."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import requests
from ending import has_ended
from ssh_server import needs_sshd, prepared, running
from waiting import wait_for

from sunspot.errors import SunspotError
from sunspot.node import notebook as on_head
from sunspot.targets import head_notebook
from sunspot.targets.ssh import Ssh, UnreachableError

JUPYTERLAB = """
import http.server, json, os, sys

class Tells(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if "token=" + os.environ["JUPYTER_TOKEN"] not in self.path:
            return self.send_error(403)
        self.send_response(200)
        self.end_headers()
        told = {"arguments": sys.argv[1:], "address": os.environ["RAY_ADDRESS"],
                "folder": os.getcwd(), "pid": os.getpid()}
        self.wfile.write(json.dumps(told).encode())
        if "shutdown" in self.path:
            os._exit(0)

    def log_message(self, *_):
        pass

if "--fails" in sys.argv:
    sys.exit("no such option: --fails")
given = dict(one.split("=", 1) for one in sys.argv[1:] if "=" in one)
server = http.server.HTTPServer((given["--ServerApp.ip"], int(given["--ServerApp.port"])), Tells)
server.serve_forever()
"""


@pytest.fixture
def head(tmp_path):
    """The way to a head in whose container JupyterLab is installed."""
    folder = tmp_path / "sshd"
    folder.mkdir()
    server = prepared(folder)
    package = tmp_path / "site" / "jupyterlab"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(JUPYTERLAB)
    server.stub(
        "docker",
        'test "$1 $2 $3 $4" = "exec --interactive sunspot-ray python" || exit 9\nshift 4\n'
        f"export PYTHONPATH={shlex.quote(str(package.parent))} HOME={shlex.quote(str(tmp_path))}\n"
        f"export {on_head.VARIABLE}={shlex.quote(str(tmp_path / 'notebooks'))}\n"
        f'exec {shlex.quote(sys.executable)} "$@"',
    )
    with running(server):
        yield Ssh.parse(server.command, key=server.key, known_hosts=tmp_path / "known_hosts")


PYTHON = ("sudo", "-n", "docker", "exec", "--interactive", "sunspot-ray", "python")


def started(head, *arguments, steps=None):
    progress = (lambda _step: None) if steps is None else steps.append
    return head_notebook.through(head, "hybrid", PYTHON, arguments, progress)


@needs_sshd
def test_it_answers_here_with_its_token_and_ends_with_the_block(head, tmp_path):
    steps = []
    with started(head, "--one-more", steps=steps) as found:
        told = requests.get(found.url, timeout=30).json()
        assert requests.get(found.url.partition("?")[0], timeout=30).status_code == 403
        assert found.is_open()
        token = found.url.partition("token=")[2]
        assert len(token) >= 32
        lines = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
        assert not any(token in line for line in lines)
        (log,) = (tmp_path / "notebooks").iterdir()
        assert log.stat().st_mode & 0o777 == 0o600
    assert steps
    assert told["arguments"][-1] == "--one-more"
    assert "--ServerApp.ip=127.0.0.1" in told["arguments"]
    assert told["address"] == "auto"
    assert told["folder"] == found.folder == str(tmp_path / "notebooks")
    wait_for("JupyterLab to end", lambda: has_ended(told["pid"]))
    assert list((tmp_path / "notebooks").iterdir()) == []


@needs_sshd
def test_one_that_does_not_start_says_its_own_last_words(head):
    with (
        pytest.raises(SunspotError, match=r"did not start.*no such option"),
        started(head, "--fails"),
    ):
        pass


@needs_sshd
def test_one_that_is_shut_down_in_the_browser_has_ended(head):
    with started(head) as found:
        assert found.is_open()
        assert requests.get(f"{found.url}&shutdown", timeout=30).ok
        wait_for("its end", lambda: not found.is_open())


@needs_sshd
def test_a_jupyterlab_that_is_killed_is_an_error(head):
    with started(head) as found:
        pid = requests.get(found.url, timeout=30).json()["pid"]
        psutil.Process(pid).kill()
        with pytest.raises(SunspotError, match="JupyterLab has failed"):
            wait_for("its end", lambda: not found.is_open())


@needs_sshd
def test_a_head_without_its_container_is_an_error_with_dockers_words(head):
    (Path(head.key).parent / "bin" / "docker").write_text(
        "#!/bin/sh\necho 'No such container: sunspot-ray' >&2\nexit 1\n"
    )
    with pytest.raises(SunspotError, match="No such container"), started(head):
        pass


def test_a_head_that_cannot_be_reached_is_named(tmp_path):
    gone = Ssh.parse("ssh -p 1 me@127.0.0.1", key=None, known_hosts=tmp_path / "k")
    with pytest.raises(UnreachableError), started(gone):
        pass


def test_the_requirements_are_pinned_with_hashes():
    text = head_notebook.requirements()
    assert "\njupyterlab==" in text
    assert "--hash=sha256:" in text


# On the head


@pytest.fixture
def without(tmp_path, monkeypatch, capsys):
    """A head without JupyterLab; the commands that were run to install it, and what was said."""
    asked = SimpleNamespace(ran=[], code=0)
    monkeypatch.setattr(on_head.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)

    def run(command, **_):
        asked.ran.append(command)
        if "venv" in command:
            (Path(command[-1]) / "lib" / "python3.11" / "site-packages").mkdir(
                parents=True, exist_ok=True
            )
        return subprocess.CompletedProcess(command, asked.code, "ERROR: no route to the index\n")

    monkeypatch.setattr(on_head.subprocess, "run", run)
    return asked


def test_it_is_installed_once_beside_rays_packages(without, tmp_path, capsys):
    python = on_head.interpreter("jupyterlab==4 --hash=sha256:0\n")
    venv, pip = without.ran
    home = Path(venv[-1])
    assert "--system-site-packages" in venv
    assert pip[0] == python == str(home / "bin" / "python")
    assert "--require-hashes" in pip
    assert Path(pip[-1]).read_text() == "jupyterlab==4 --hash=sha256:0\n"
    (beside,) = home.glob("lib/*/site-packages/*.pth")
    assert sysconfig.get_paths()["purelib"] in beside.read_text().splitlines()
    assert "installing" in json.loads(capsys.readouterr().out)["step"]
    assert on_head.interpreter("jupyterlab==4 --hash=sha256:0\n") == python
    assert len(without.ran) == 2
    assert on_head.interpreter("jupyterlab==5 --hash=sha256:0\n") != python


def test_an_installation_that_fails_is_tried_again(without, capsys):
    without.code = 1
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            on_head.interpreter("")
        assert ended.value.code == 1
    assert len(without.ran) == 2
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "no route to the index" in said["error"]


def test_it_needs_nothing_of_ours_on_the_head(tmp_path):
    code = textwrap.dedent(f"""
        import sys
        exec(compile(open({on_head.__file__!r}).read(), "sent", "exec"), {{"__name__": "sent"}})
        print(sorted(name for name in sys.modules if name.startswith(("sunspot", "psutil"))))
    """)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        cwd=tmp_path,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr
