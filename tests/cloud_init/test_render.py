"""The user data: what it holds, what it must never hold, how large it may be."""

import re
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import node_values
import pytest
import sandbox

from cloud_init import MAX_USER_DATA_BYTES, AzureFacts, NodeValues, readable, render
from cloud_init.render import (
    FILES,
    NODE_ENV,
    NODE_MODULES,
    NODE_PYTHON,
    NODE_SOURCES,
    ORPHAN_UNIT,
    RESERVED_PORTS,
    environment,
)
from cloud_init.spare import without_documentation
from sunspot import monitoring
from sunspot.ray import ports

EVERY_NODE = pytest.mark.parametrize("values", node_values.ALL.values(), ids=list(node_values.ALL))


def node_env(values: NodeValues) -> str:
    return sandbox.landed(render(values))[NODE_ENV][0].decode()


def sources_for(values: NodeValues) -> dict[str, Path]:
    """What lands on a node, and where: no more than it runs."""
    sources = {f"/{p.relative_to(FILES)}": p for p in FILES.rglob("*") if p.is_file()}
    shared = (path for path in monitoring.FOLDER.rglob("*.*") if path.suffix not in (".py", ".pyc"))
    sources |= {f"/etc/sunspot/{path.relative_to(monitoring.FOLDER)}": path for path in shared}
    sources |= {f"{NODE_PYTHON}/sunspot/node/{name}": NODE_SOURCES / name for name in NODE_MODULES}
    others = {f"driver-{one}.sh" for one in ("nvidia", "rocm") if one != values.driver}
    if values.driver != "nvidia":
        others.add("cuda.py")
    of_head, of_worker = {"grafana.sh", "prometheus.sh"}, {"orphan.sh", ORPHAN_UNIT}
    others |= of_worker if values.role == "head" else of_head
    return {
        path: source
        for path, source in sources.items()
        if source.name not in others
        and (values.role == "head" or not path.startswith("/etc/sunspot/"))
    }


@EVERY_NODE
@pytest.mark.parametrize("compress", [True, False])
def test_files_land_exactly_as_they_are(values: NodeValues, compress: bool) -> None:
    landed = sandbox.landed(render(values, compress=compress))
    sources = sources_for(values)
    assert sources.keys() <= landed.keys()
    for path, source in sources.items():
        text = source.read_bytes()
        if source.suffix == ".py":
            text = without_documentation(text.decode()).encode()
        assert landed[path] == (text, 0o755 if path.endswith(".sh") else 0o644), path
    assert landed.keys() - sources.keys() == {NODE_ENV, RESERVED_PORTS}


@EVERY_NODE
def test_same_values_same_bytes_in_another_process(values: NodeValues) -> None:
    code = (
        "import sys, node_values\nfrom cloud_init import render\n"
        "sys.stdout.buffer.write(render(node_values.ALL[sys.argv[1]]))"
    )
    tests = Path(node_values.__file__).parent
    name = next(name for name, known in node_values.ALL.items() if known is values)
    other = subprocess.run(
        [sys.executable, "-c", code, name],
        env={"PYTHONPATH": f"{tests}:{tests.parent}", "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
        cwd=tests,
        capture_output=True,
        check=True,
    )
    assert other.stdout == render(values)


def test_a_gzip_header_has_neither_time_nor_system() -> None:
    # Magic, deflate, no flags, time 0, best compression, unknown system.
    assert render(node_values.HEAD)[:10] == b"\x1f\x8b\x08\x00\0\0\0\0\x02\xff"


@EVERY_NODE
@pytest.mark.parametrize("compress", [True, False])
def test_cloud_init_accepts_it(values: NodeValues, compress: bool, tmp_path: Path) -> None:
    schema(render(values, compress=compress), tmp_path)


def test_cloud_init_would_refuse_a_mistake(tmp_path: Path) -> None:
    wrong = render(node_values.HEAD, compress=False).replace(
        b"  permissions: '0755'", b"  permission: '0755'"
    )
    with pytest.raises(AssertionError, match="permission"):
        schema(wrong, tmp_path)


def schema(user_data: bytes, folder: Path) -> None:
    command = shutil.which("cloud-init")
    if command is None:
        pytest.skip("cloud-init is not installed")
    path = folder / "user-data.yaml"
    path.write_bytes(readable(user_data))
    checked = subprocess.run(
        [command, "schema", "--config-file", str(path)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "Valid" in checked.stdout


@EVERY_NODE
def test_it_is_small(values: NodeValues) -> None:
    packed, plain = render(values), render(values, compress=False)
    assert plain.startswith(b"#cloud-config\n")
    assert readable(packed) == plain
    assert len(packed) < len(plain)
    assert len(packed) < MAX_USER_DATA_BYTES


def test_too_large_names_size_and_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(render.__globals__, "MAX_USER_DATA_BYTES", 20_000)
    with pytest.raises(ValueError, match=r"head: the user data has \d+ bytes.* at most 20000"):
        render(node_values.HEAD)


@EVERY_NODE
def test_no_value_looks_like_a_secret(values: NodeValues) -> None:
    env = environment(values)
    doubtful = re.compile(r"(?i)password|credential|private|account_?key|sig=|-----BEGIN")
    digest = re.compile(r"@sha256:[0-9a-f]{64}\b")  # an image's
    long_word = re.compile(r"[A-Za-z0-9+/=_]{40,}")  # a key, in base64 or hexadecimal
    for name, value in env.items():
        assert not doubtful.search(value), name
        assert not long_word.search(digest.sub("", value)), name
    assert not doubtful.search(" ".join(env))
    # What holds the word names a place, a mode, or a name.
    assert {name for name in env if re.search("TOKEN|SECRET|KEY", name)} == {
        "SUNSPOT_TOKEN_SECRET",
        "RAY_AUTH_TOKEN_PATH",
    }
    assert env["RAY_AUTH_MODE"] == "token"
    assert env["RAY_AUTH_TOKEN_PATH"].startswith("/run/")


@EVERY_NODE
def test_node_env_reads_the_same_in_sh(values: NodeValues, tmp_path: Path) -> None:
    path = tmp_path / "node.env"
    path.write_text(node_env(values))
    read = subprocess.run(
        ["/bin/sh", "-c", f"set -a; . {path}; exec env -0"],
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    found = dict(line.split("=", 1) for line in read.stdout.split("\0") if line)
    assert {name: found[name] for name in environment(values)} == environment(values)


AWKWARD = 'a b  "c" \\ \\\\ ;#!*(){}|&<>~`e` é \\n \\'


def test_awkward_values_read_the_same_in_sh_and_systemd(tmp_path: Path) -> None:
    values = replace(node_values.HEAD, cluster=AWKWARD)
    path = tmp_path / "environment.d/node.conf"
    path.parent.mkdir()
    path.write_text(node_env(values))
    shell = subprocess.run(
        ["/bin/sh", "-c", f'. {path}; printf %s "$SUNSPOT_CLUSTER"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout == AWKWARD
    # Reads with systemd's own parser of EnvironmentFile= (and then expands $, which none has here).
    reader = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
    if not reader.exists():
        pytest.skip("no systemd to read environment files")
    printed = subprocess.run(
        [reader],
        env={"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    line = next(line for line in printed.splitlines() if line.startswith("SUNSPOT_CLUSTER="))
    unquoted = subprocess.run(
        ["/bin/sh", "-c", f'{line}; printf %s "$SUNSPOT_CLUSTER"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert unquoted.stdout == AWKWARD


def test_a_dollar_stays_a_dollar_in_sh(tmp_path: Path) -> None:
    path = tmp_path / "node.env"
    path.write_text(node_env(replace(node_values.HEAD, cluster="$(id) ${HOME} $x")))
    shell = ["/bin/sh", "-c", f'. {path}; printf %s "$SUNSPOT_CLUSTER"']
    assert subprocess.check_output(shell, text=True) == "$(id) ${HOME} $x"


@pytest.mark.parametrize("bad", ["it's", "two\nlines", "a\ttab", "nul\0", "escape\x1b"])
@pytest.mark.parametrize("name", [f.name for f in fields(NodeValues) if f.type is str])
def test_a_value_that_cannot_be_quoted_is_refused(name: str, bad: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be passed to a node"):
        render(replace(node_values.HEAD, **{name: bad}))


@pytest.mark.parametrize("bad", ["it's", "two\nlines"])
@pytest.mark.parametrize("name", [f.name for f in fields(AzureFacts) if f.name != "built_image"])
def test_a_fact_that_cannot_be_quoted_is_refused(name: str, bad: str) -> None:
    facts = replace(node_values.FACTS, **{name: f"{bad}."})
    with pytest.raises(ValueError, match=r"cannot be passed to a node"):
        render(replace(node_values.HEAD, facts=facts))


def test_a_flag_of_two_words_is_refused() -> None:
    facts = replace(node_values.FACTS, head_address="10.20.0.4 --head")
    with pytest.raises(ValueError, match=r"10\.20\.0\.4 --head"):
        render(replace(node_values.CPU_WORKER, facts=facts))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"role": "driver"}, "role 'driver' is unknown: choose head or worker"),
        ({"market": "spot-with-fallback"}, "market 'spot-with-fallback' is unknown"),
        ({"driver": "cuda"}, "driver 'cuda' is unknown"),
        ({"resources": node_values.T4_WORKER.resources}, "1 GPUs with driver 'none'"),
        ({"driver": "nvidia"}, "0 GPUs with driver 'nvidia'"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(node_values.CPU_WORKER, **change)


@EVERY_NODE
def test_ports_are_those_of_the_table(values: NodeValues) -> None:
    env = environment(values)
    pinned = {f"--{name}={port}" for name, port in ports.start_parameters(values.role).items()}
    assert pinned <= set(env["SUNSPOT_RAY_FLAGS"].split())
    assert ports.environment(values.role).items() <= env.items()
    assert env["SUNSPOT_HEAD_PORT"] == "6379"
    assert env["SUNSPOT_AGENT_PORT"] == "52365"


@pytest.mark.parametrize(
    ("values", "reserved"),
    [(node_values.HEAD, "44217,44227,52365"), (node_values.T4_WORKER, "52365")],
)
def test_other_processes_are_not_given_rays_ports(values: NodeValues, reserved: str) -> None:
    text = sandbox.landed(render(values))[RESERVED_PORTS][0].decode()
    assert text == f"net.ipv4.ip_local_reserved_ports = {reserved}\n"


def test_the_object_store_fits_into_shared_memory() -> None:
    shm = int(environment(node_values.T4_WORKER)["SUNSPOT_SHM_BYTES"])
    resources = node_values.T4_WORKER.resources
    assert resources.object_store < shm < resources.memory


@pytest.mark.parametrize("driver", ["nvidia", "rocm", "none"])
def test_the_driver_decides_which_unit_is_enabled(driver: Any) -> None:
    like = node_values.CPU_WORKER if driver == "none" else node_values.T4_WORKER
    values = replace(like, driver=driver)
    reserve, reload, enable, start = sandbox.cloud_config(render(values))["runcmd"]
    assert reserve == ["sysctl", "--quiet", f"--load={RESERVED_PORTS}"]
    assert reload == ["systemctl", "daemon-reload"]
    assert start == ["systemctl", "start", "--no-block", "sunspot-ray.service"]
    drivers = [unit for unit in enable if "driver" in unit]
    assert drivers == ([] if driver == "none" else [f"sunspot-driver@{driver}.service"])
    assert "sunspot-ray.service" in enable


def test_only_an_autoscaled_head_gets_the_autoscaler() -> None:
    plain, scaled = environment(node_values.HEAD), environment(node_values.AUTOSCALED_HEAD)
    assert plain["SUNSPOT_AUTOSCALED"] == ""
    assert scaled.items() - plain.items() == {
        ("SUNSPOT_AUTOSCALED", "1"),
        ("SUNSPOT_RAY_FLAGS", scaled["SUNSPOT_RAY_FLAGS"]),
        ("RAY_enable_autoscaler_v2", "1"),
        ("RAY_enable_infeasible_task_early_exit", "true"),
        ("RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", "1500"),
        ("AUTOSCALER_MAX_LAUNCH_BATCH", "1000"),
        ("AUTOSCALER_MAX_CONCURRENT_LAUNCHES", "40000"),
    }
