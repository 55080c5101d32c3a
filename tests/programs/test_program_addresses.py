"""Programs that say where their cluster is, in all the ways that people do."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Sunspot
from sunspot_command import fresh

from sunspot.node.free_ports import free_port
from sunspot.ray import ports
from sunspot.ray.handle import ClusterHandle

Brought = Callable[[str], Path]
DEADLINE_S = 600

# What each program prints at its end.
PROGRAMS = {
    "primes_at_localhost.py": "168 primes in",
    "finds_auto.py": "2 nodes",
    "names_no_address.py": "2 nodes",
    "reads_ray_address.py": "2 nodes",
    "never_calls_init.py": "2 nodes",
    "asks_what_runs.py": "2 nodes",
    "names_its_own_folder.py": "hello from its own folder",
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
    program: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_a_program_goes_through_ray_client_with_the_token(
    cluster: ClusterHandle, brought: Brought, drivers_variables: dict[str, str]
):
    assert cluster.client_address is not None
    program = [str(brought("goes_through_ray_client.py")), cluster.client_address]
    done = through_client(program, drivers_variables)
    for _ in range(2):
        # Ray gives a driver's server 30 s to start (proxier.py, 2.60), few on a busy machine.
        if "Starting Ray client server failed" in done.stderr:
            done = through_client(program, drivers_variables)
    assert "2 nodes" in done.stdout, done.stderr
    without = {name: v for name, v in drivers_variables.items() if "RAY_AUTH" not in name}
    refused = through_client(program, without)
    assert refused.returncode == 1
    assert refused.stdout == ""
    # All that Ray says of it (2.60), after its 30 s; the same server has just answered.
    assert refused.stderr.endswith("ConnectionError: ray client connection timeout\n")


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_is_up_does_not_get_ray_client(sunspot: Sunspot):
    sunspot.ok("up", "--file", "programs.yaml", "--client")
    folder = sunspot.folder("programs")
    port = folder.cluster().client_port
    folder.update_cluster(client_port=None)
    try:
        refused = sunspot("up", "--file", "programs.yaml", "--client")
    finally:
        folder.update_cluster(client_port=port)
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
    name = fresh("elsewhere")
    command = ("--working-dir", str(tmp_path), "--name", name)
    with sunspot.started("submit", *command, "--", "python", "elsewhere.py") as submit:
        assert submit.stderr is not None
        told = read_until(submit.stderr, "connects to")
        assert str(port) in told
        assert sunspot.job("programs", name).status == "RUNNING"
        sunspot.ok("stop", name, "--stack", "programs")
