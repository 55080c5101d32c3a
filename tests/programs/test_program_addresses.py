"""Programs that say where their cluster is, in all the ways that people do."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Sunspot

from sunspot.node.free_ports import free_port
from sunspot.ray import ports
from sunspot.ray.handle import ClusterHandle

Brought = Callable[[str], Path]
DEADLINE_S = 120

# What each program prints at its end.
PROGRAMS = {
    "primes_at_localhost.py": "168 primes in",
    "finds_auto.py": "2 nodes",
    "names_no_address.py": "2 nodes",
    "reads_ray_address.py": "2 nodes",
    "never_calls_init.py": "2 nodes",
    "asks_what_runs.py": "2 nodes",
}


def read_until(stream: Iterator[str], text: str) -> str:
    """The first line with the text; fails if the stream ends before."""
    seen = []
    for line in stream:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"it ended without {text!r}: {''.join(seen)}")


@pytest.fixture(scope="module")
def jobs(sunspot: Sunspot, brought: Brought) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """The programs as jobs, all at once: one after the other they would take a minute."""
    with contextlib.ExitStack() as running:
        yield {
            name: running.enter_context(
                sunspot.started(
                    "submit", "--working-dir", str(brought(name).parent), "--", "python", name
                )
            )
            for name in PROGRAMS
        }


@pytest.fixture(scope="module")
def drivers(
    brought: Brought, drivers_variables: dict[str, str]
) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """The programs as drivers on this machine, all at once."""
    with contextlib.ExitStack() as running:
        started: dict[str, subprocess.Popen[str]] = {}
        for name in PROGRAMS:
            file = brought(name)
            process = subprocess.Popen(
                [sys.executable, str(file)],
                cwd=file.parent,
                env=drivers_variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started[name] = running.enter_context(process)
            running.callback(process.kill)
        yield started


def through_client(
    program: list[str], environment: dict[str, str], attempts: int = 3
) -> subprocess.CompletedProcess[str]:
    """A run of a program; Ray may need more than its 30 s for the server on a busy machine."""
    done = subprocess.run(
        [sys.executable, *program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if attempts > 1 and "Starting Ray client server failed" in done.stderr:
        return through_client(program, environment, attempts - 1)
    return done


@pytest.mark.parametrize("has_token", [True, False])
def test_a_program_goes_through_ray_client_with_the_token(
    cluster: ClusterHandle, brought: Brought, drivers_variables: dict[str, str], has_token: bool
):
    assert cluster.client_address is not None
    without = {name: v for name, v in drivers_variables.items() if "RAY_AUTH" not in name}
    done = through_client(
        [str(brought("goes_through_ray_client.py")), cluster.client_address],
        drivers_variables if has_token else without,
    )
    assert ("2 nodes" in done.stdout) == has_token, done.stderr


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_is_up_does_not_get_ray_client(sunspot: Sunspot):
    sunspot.ok("up", "--file", "programs.yaml", "--client")
    record = sunspot.target.clusters / "programs" / "cluster.json"
    text = record.read_text()
    record.write_text(json.dumps(json.loads(text) | {"client_port": None}))
    try:
        refused = sunspot("up", "--file", "programs.yaml", "--client")
    finally:
        record.write_text(text)
    assert refused.returncode == 2
    assert "sunspot down programs" in refused.stderr


@pytest.mark.parametrize(("program", "printed"), PROGRAMS.items())
def test_it_runs_unchanged_as_a_job(
    jobs: dict[str, subprocess.Popen[str]], program: str, printed: str
):
    out, err = jobs[program].communicate(timeout=DEADLINE_S)
    assert jobs[program].returncode == 0, out + err
    assert printed in out
    assert "connects to" not in err


@pytest.mark.parametrize(("program", "printed"), PROGRAMS.items())
def test_it_runs_unchanged_as_a_driver_with_the_lines_of_up(
    drivers: dict[str, subprocess.Popen[str]], program: str, printed: str
):
    out, err = drivers[program].communicate(timeout=DEADLINE_S)
    assert drivers[program].returncode == 0, out + err
    assert printed in out


def test_the_cluster_has_rays_usual_port_if_it_was_free(
    cluster: ClusterHandle, sunspot: Sunspot, gcs_port_was_free: bool
):
    port = sunspot.folder("programs").cluster().gcs_port
    assert (port == ports.get("gcs").number) is gcs_port_was_free


def test_a_second_cluster_says_who_has_the_port_and_what_frees_it(
    cluster: ClusterHandle, sunspot: Sunspot, gcs_port_was_free: bool
):
    (sunspot.project / "second.yaml").write_text("head_node: {cpu: 1, memory_gb: 2}\n")
    try:
        done = sunspot("up", "--file", "second.yaml")
        assert done.returncode == 0, done.stderr
        told = " ".join(done.stderr.split())
        assert "port 6379 is taken" in told
        if gcs_port_was_free:
            assert "by the cluster 'programs'" in told
            assert "sunspot down programs, then its `up` again with --port " in told
    finally:
        sunspot.ok("down", "second")


def test_an_address_that_is_no_clusters_is_said_within_seconds(
    cluster: ClusterHandle, sunspot: Sunspot, tmp_path: Path
):
    port = free_port({int(cluster.head_address.rpartition(":")[2])})
    code = f"import ray, sys\naddress = 'localhost:{port}'\nray.init(address)\n"
    (tmp_path / "elsewhere.py").write_text(code)
    command = ("--working-dir", str(tmp_path), "--name", "elsewhere")
    with sunspot.started("submit", *command, "--", "python", "elsewhere.py") as submit:
        assert submit.stderr is not None
        told = read_until(submit.stderr, "connects to")
        assert str(port) in told
        assert sunspot.job("programs", "elsewhere").status == "RUNNING"
        sunspot.ok("stop", "elsewhere", "--stack", "programs")
