"""The Dockerfiles, built for real on the stand-in for Ray's image."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines.docker import Docker
from machines.dockerfiles import DOCKER, IN_CONTAINER, Builder
from machines.processes import StepError
from package_index import serving

pytestmark = pytest.mark.timeout(3600)

TORCH = dict(re.findall(r"^(\w+)==(\S+)$", (DOCKER / "requirements/torch.txt").read_text(), re.M))
# What an image may add to its base.
MAX_LAYERS = 3


@pytest.fixture
def torch_index(tmp_path: Path) -> Iterator[str]:
    """Instead of PyTorch's own index, which has what the package index has not."""
    with serving(tmp_path, {name: f"{version}+here" for name, version in TORCH.items()}) as url:
        yield url


@pytest.fixture(scope="module")
def images(builder: Docker, base_name: str, pip_settings: Path) -> Builder:
    return Builder(builder, base_name, pip_settings)


def test_cpu(images: Builder, torch_index: str) -> None:
    tag = images.build("cpu", TORCH_INDEX=torch_index)
    packages = images.packages(tag)
    assert packages["torch"] == f"{TORCH['torch']}+here"
    assert images.run(tag, "pip", "check").strip() == "No broken requirements found."
    assert images.run(tag, "python", "-c", "import pandas, pyarrow, ray.train") == ""
    check(images, tag)


def test_cuda(images: Builder) -> None:
    # In full: some 3 GB from the package index where the engine has not built it before.
    tag = images.build("cuda")
    assert images.run(tag, "pip", "check").strip() == "No broken requirements found."
    script = "import lightning, torch, torchvision; print(torch.__version__, torch.version.cuda)"
    version, cuda = images.run(tag, "python", "-c", script).split()
    assert version.split("+")[0] == TORCH["torch"]
    assert cuda[0].isdigit()
    # torch demands setuptools, which Ray does not.
    check(images, tag, replaced=frozenset({"setuptools"}))


def test_rocm(images: Builder, torch_index: str) -> None:
    tag = images.build("rocm", TORCH_INDEX=torch_index)
    assert images.packages(tag)["torch"] == f"{TORCH['torch']}+here"
    # What gpus.sh asks. Here it has nothing to tell, and says so.
    asked = images.docker.run("run", "--rm", "--network=none", "--entrypoint=rocminfo", tag)
    assert "ROCk module is NOT loaded" in asked.stdout
    check(images, tag)


def test_rocm_wants_an_index(images: Builder) -> None:
    with pytest.raises(StepError, match="name the index: --build-arg TORCH_INDEX"):
        images.build("rocm")


def test_jupyter(images: Builder) -> None:
    tag = images.build("jupyter")
    assert images.run(tag, "jupyter", "lab", "--version")[0].isdigit()
    check(images, tag)


def check(images: Builder, tag: str, replaced: frozenset[str] = frozenset()) -> None:
    """What holds for every image of ours; `replaced` may have another version than in the base."""
    added = images.packages(tag)
    kept = images.packages(images.base)
    changed = {name for name, version in kept.items() if added.get(name) != version}
    assert changed <= replaced, "what the base image has is replaced"
    assert images.run(tag, "id", "-u").strip() == "1000"
    leftovers = ("/home/ray/.cache", "/root/.cache", "/var/lib/apt/lists", "/var/cache/apt")
    found = images.run(tag, "sh", "-c", f"find {' '.join(leftovers)} -type f 2>&1 || true")
    assert not [line for line in found.splitlines() if line.startswith("/")]
    history = images.docker("history", "--no-trunc", "--format={{json .}}", tag)
    assert "pip.conf,mode" not in images.docker("inspect", tag)
    assert "BEGIN CERTIFICATE" not in history
    for path in ("/etc/pip.conf", IN_CONTAINER):
        # A mount point of the build may stay, without its content.
        assert images.run(tag, "sh", "-c", f"cat {path} 2>/dev/null || true") == ""
    layers = images.docker.inspect(tag)["RootFS"]["Layers"]
    assert len(layers) - len(images.docker.inspect(images.base)["RootFS"]["Layers"]) <= MAX_LAYERS
