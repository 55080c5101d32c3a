"""The file that Compose gets, as Compose itself reads it; it needs no engine for that."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from compose_engine import PLUGIN, need_built
from compose_stacks import AMD, NVIDIA, group, host, stack

from sunspot.targets.compose import manifest, plan, published, secret_files

GPU_GROUP = group("gpu", gpus=1, minimum=1, maximum=2)
SECRET = "not-to-be-shown"


@pytest.fixture(scope="module", autouse=True)
def _plugin() -> None:
    need_built(PLUGIN)


def read(described: Any, on: Any, folder: Path) -> tuple[dict[str, Any], str]:
    """What Compose makes of a stack on a host, and all that it printed."""
    (folder / "docker").mkdir()
    (folder / "docker" / "jupyter.Dockerfile").touch()
    made = plan.make(described, on, folder)
    ports = published.choose(made, dashboard=None, taken=set(), claims=None)
    file = folder / "compose.yaml"
    file.write_text(manifest.text(made, ports, "owner"))
    done = subprocess.run(
        [PLUGIN, "--file", file, "--profile", "*", "config", "--format", "json"],
        env=os.environ | dict.fromkeys(secret_files.VARIABLES.values(), SECRET),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("workers", [group(), group(gpus=1)])
def test_it_takes_the_file_without_a_complaint(tmp_path: Path, workers: dict[str, Any]) -> None:
    found, printed = read(stack(workers, data={"/srv/food": "/mnt/Food-11"}), host(), tmp_path)
    assert found["name"] == "sunspot-course"
    assert "level=warning" not in printed
    assert SECRET not in printed
    (mounted,) = found["services"]["workers-1"]["volumes"]
    assert (mounted["source"], mounted["target"]) == ("/srv/food", "/mnt/Food-11")
    assert mounted["read_only"]


def test_two_workers_have_a_gpu_of_nvidia_each(tmp_path: Path) -> None:
    found, _ = read(stack(GPU_GROUP), NVIDIA, tmp_path)
    devices = {
        name: one["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"]
        for name, one in found["services"].items()
        if one.get("deploy")
    }
    assert devices == {"gpu-1": ["0"], "gpu-2": ["1"]}


def test_two_workers_have_a_gpu_of_amd_each(tmp_path: Path) -> None:
    found, _ = read(stack(GPU_GROUP, image="mine/rocm:1"), AMD, tmp_path)
    devices = {
        name: [device["source"] for device in one["devices"]]
        for name, one in found["services"].items()
        if one.get("devices")
    }
    assert devices == {
        "gpu-1": ["/dev/kfd", "/dev/dri/renderD128"],
        "gpu-2": ["/dev/kfd", "/dev/dri/renderD129"],
    }
    assert found["services"]["gpu-1"]["group_add"] == ["44", "109"]


def test_ports_are_published_on_the_loopback_address(tmp_path: Path) -> None:
    found, _ = read(stack(group()), host(), tmp_path)
    ports = [port for one in found["services"].values() for port in one.get("ports") or []]
    assert len(ports) == 6
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_files_reach_the_containers_as_they_are(tmp_path: Path) -> None:
    found, _ = read(stack(group()), host(), tmp_path)
    # Compose prints dollar signs doubled, as the file has them.
    content = found["configs"]["grafana-dashboards-sunspot.json"]["content"].replace("$$", "$")
    assert json.loads(content)["title"] == "Sunspot"
