"""A cluster as a person starts it, beside that of the tests: Ctrl-C leaves nothing of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from ending import words_of
from leftovers import paths_below, pids_with_files_in
from machines import PROJECT
from machines.kubernetes import needed
from machines.kubernetes.cluster import Kubectl
from machines.processes import DEADLINE_S, checked

COMMAND = (sys.executable, "-m", "machines.kubernetes")
FOLDERS = os.pathsep.join(str(PROJECT / folder) for folder in ("tests", "tests/real"))
# What a kubelet sets on a machine of its own.
SETTINGS = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
GROUP = "sunspot-kubernetes"

_KUBECONFIG = re.compile(r"export KUBECONFIG=(\S+)")


def _settings_and_rules() -> list[str]:
    rules = checked(["iptables-save"])
    settings = [Path("/proc/sys", name).read_text() for name in SETTINGS]
    return settings + [line for line in rules.splitlines() if line.startswith("-A")]


def test_an_interrupt_leaves_nothing():
    needed.need()
    before = _settings_and_rules()
    folder = _start_and_interrupt()
    number = folder.name
    assert not folder.exists()
    assert f"sunspot-k8s-{number}" not in psutil.net_if_addrs()
    assert f"{folder}/" not in Path("/proc/mounts").read_text()
    groups = [p for p in paths_below(Path("/sys/fs/cgroup")) if p.name == f"{GROUP}-{number}"]
    assert groups == []
    left = [p for p in psutil.process_iter() if any(f"{folder}/" in w for w in words_of(p))]
    assert left == []
    assert pids_with_files_in(folder) == set()
    assert _settings_and_rules() == before


def _start_and_interrupt() -> Path:
    """Runs a pod in a cluster, and interrupts it; the folder that it had."""
    with subprocess.Popen(
        COMMAND,
        env={**os.environ, "PYTHONPATH": FOLDERS},
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            assert process.stdout is not None
            found = next(filter(None, map(_KUBECONFIG.search, process.stdout)))
            kubectl = Kubectl(Path(found[1]))
            image = "docker.io/local/ray:2.60.0"
            kubectl("run", "sleeper", f"--image={image}", "--", "sleep", "600")
            kubectl("wait", "--for=condition=Ready", "pod/sleeper", "--timeout=300s")
        finally:
            # As a terminal does it.
            os.killpg(process.pid, signal.SIGINT)
            status = process.wait(DEADLINE_S)
    assert status == 0
    return Path(found[1]).parent
