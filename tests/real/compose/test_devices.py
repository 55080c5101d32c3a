"""What GPUs a container is given, by the word of its OCI runtime: no GPU is here."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compose_engine import WITHIN_LIMITS, Behind, engine_behind, need_compose
from compose_site import cluster, compose_site, config
from machines import CACHE, base_image
from machines.docker import engine
from machines.needs import SYSTEM_PATH
from machines.network import Network
from sites import Site

RUNTIME = Path(__file__).with_name("recording_runtime.py")
WORKERS = ("gpu-1", "gpu-2")
# Not that of the other tests, whose engine may run meanwhile.
STORAGE = CACHE / "compose-devices"

# As many as there are, and no more. The engine knows NVIDIA's runtime by its hook on the PATH
# (daemon/nvidia_linux.go of Docker 20).
TOOLS = {
    "nvidia-smi": "#!/bin/sh\nprintf '0\\n1\\n'\n",
    "nvidia-container-runtime-hook": "#!/bin/sh\n",
    "nvidia-container-cli": "#!/bin/sh\n",
    "rocm-smi": "#!/bin/sh\n",
}
AMD_DEVICES = """
mkdir -p /dev/dri
[ -e /dev/kfd ] || mknod /dev/kfd c 1 3
for minor in 128 129; do
    [ -e "/dev/dri/renderD$minor" ] || mknod "/dev/dri/renderD$minor" c 1 3
done
chgrp 44 /dev/kfd /dev/dri/renderD*
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("devices")
    (folder / "records").mkdir()
    (folder / "tools").mkdir()
    for name, text in TOOLS.items():
        (folder / "tools" / name).write_text(text)
        (folder / "tools" / name).chmod(0o755)
    runtime = folder / "runtime"
    shutil.copy(WITHIN_LIMITS, folder / "next")
    text = RUNTIME.read_text().replace("FOLDER", str(folder / "records"))
    runtime.write_text(text.replace("NEXT", str(folder / "next")))
    for program in (runtime, folder / "next"):
        program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def images() -> dict[str, str]:
    """The image of the nodes, in the storage of this module's engine."""
    need_compose()
    with engine(STORAGE) as docker:
        return {"ray": base_image.load(docker, base_image.base_image())}


@pytest.fixture(scope="module")
def recording(lan: Network, images: dict[str, str], work: Path) -> Iterator[Behind]:
    path = f"{work / 'tools'}:{SYSTEM_PATH}"
    with engine_behind(lan, 11, STORAGE, runtime=work / "runtime", path=path) as made:
        done = made.run("sh", "-c", AMD_DEVICES)
        assert done.returncode == 0, done.stderr
        yield made


@pytest.fixture(scope="module")
def place(recording: Behind, images: dict[str, str], work: Path) -> Site:
    root = work / "root"
    root.mkdir()
    made = compose_site(root, recording, images["ray"], {})
    variables = {**made.variables, "PATH": f"{work / 'tools'}:{SYSTEM_PATH}"}
    site = Site(**{**vars(made), "variables": variables})
    site.prepare()
    return site


def up(place: Site, images: dict[str, str], work: Path, maker: str) -> dict[str, dict[str, Any]]:
    """What the containers of two workers with a GPU each were given, by their services."""
    for record in (work / "records").iterdir():
        record.unlink()
    small = Site(
        **{
            **vars(place),
            "config": config(images["ray"], {}, monitoring=False, storage=False, jupyter=False),
        }
    )
    small.write_stack("two", cluster("gpu", gpus=1, minimum=2, maximum=2))
    try:
        small.ok("up", "two", "--gpu", maker)
        found = [json.loads(one.read_text()) for one in (work / "records").iterdir()]
    finally:
        small.ok("down", "two", "--volumes")
    named = {}
    for record in found:
        flags = [flag for flag in record["arguments"] if flag.startswith("--node-name=")]
        if flags:
            named[flags[0].partition("=")[2]] = record
    return named


def visible(record: dict[str, Any]) -> set[str]:
    """NVIDIA's GPUs that a container may use."""
    values = [
        one.partition("=")[2]
        for one in record["environment"]
        if one.startswith("NVIDIA_VISIBLE_DEVICES=")
    ]
    return set(values[-1].split(",")) - {"void"} if values else set()


def test_two_workers_have_a_gpu_of_nvidia_each(
    place: Site, images: dict[str, str], work: Path
) -> None:
    records = up(place, images, work, "nvidia")
    given = {name: visible(records[name]) for name in WORKERS}
    assert given == {"gpu-1": {"0"}, "gpu-2": {"1"}}
    assert all(records[name]["hooks"] for name in WORKERS)
    assert visible(records["head"]) == set()
    assert not records["head"]["hooks"]


def test_two_workers_have_a_gpu_of_amd_each(
    place: Site, images: dict[str, str], work: Path
) -> None:
    # The kernel lists AMD's GPUs in /sys, where nothing can be put.
    (work / "tools" / "cat").write_text("#!/bin/sh\nprintf 'drm_render_minor %s\\n' 128 129\n")
    (work / "tools" / "cat").chmod(0o755)
    try:
        records = up(place, images, work, "amd")
    finally:
        (work / "tools" / "cat").unlink()
    given = {
        name: {path for path in records[name]["devices"] if "/dri/" in path or "kfd" in path}
        for name in WORKERS
    }
    assert given == {
        "gpu-1": {"/dev/kfd", "/dev/dri/renderD128"},
        "gpu-2": {"/dev/kfd", "/dev/dri/renderD129"},
    }
    assert all(44 in records[name]["groups"] for name in WORKERS)
    assert not any("renderD" in path for path in records["head"]["devices"])
