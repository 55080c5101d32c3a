"""The images of a cluster, in the store of a containerd; no registry is asked for one."""

import contextlib
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from machines import base_image
from machines.kept import kept, key, locked, remove_others
from machines.kubernetes import BIN, CACHE
from machines.processes import DEADLINE_S, StepError, checked, environment, server

# Of containerd, where the kubelet looks for images.
NAMESPACE = "k8s.io"

PAUSE = "docker.io/local/pause:1"
# Ray's own name of it is that which a manifest has where the stack names no image.
RAY = ("docker.io/local/ray:2.60.0", "docker.io/rayproject/ray:2.60.0-py311")


# A store of another recipe has 930 MB.
UNUSED_S = 24 * 3600


def store() -> Path:
    """The root of a containerd that has the images; not to be written to."""
    base = base_image.base_image()
    recipe = Path(__file__).read_text()
    pause = hashlib.sha256((BIN / "pause").read_bytes()).hexdigest()
    made = key(recipe, base.tar.parent.name, base_image.CHANGES, RAY, pause)
    found = kept(CACHE / f"images-{made}", lambda folder: _fill(folder, base.tar))
    remove_others(found, "images-*", UNUSED_S)
    return found


def copy_store(target: Path) -> None:
    """A copy for one cluster. Only databases are written to; all else is linked, which is quick."""
    source = store()
    with locked(source):
        checked(["cp", "--archive", "--link", source, target])
    for database in target.rglob("*.db"):
        database.unlink()
        shutil.copy(source / database.relative_to(target), database)


def _fill(folder: Path, ray: Path) -> None:
    folder.mkdir(parents=True)
    with _containerd(folder) as address, tempfile.TemporaryDirectory(prefix="pause-") as name:
        pause = Path(name, "rootfs.tar")
        with tarfile.open(pause, "w") as tar:
            tar.add(BIN / "pause", "pause")
        _import(address, pause, {"Entrypoint": ["/pause"], "User": "65535:65535"}, [PAUSE])
        _import(address, ray, _config(base_image.CHANGES), RAY)


@contextlib.contextmanager
def _containerd(root: Path) -> Iterator[Path]:
    """A containerd over that root while the block runs; its socket."""
    with tempfile.TemporaryDirectory(prefix="containerd-") as name:
        folder = Path(name)
        address = folder / "containerd.sock"
        (folder / "config.toml").write_text(
            'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        )
        command = ["containerd", "--config", folder / "config.toml", "--address", address]
        command += ["--root", root, "--state", folder / "state"]
        with server(command, folder / "log", ready=lambda: _answers(address)):
            yield address


def _answers(address: Path) -> bool:
    asked = ["ctr", "--address", str(address), "version"]
    return subprocess.run(asked, env=environment(), capture_output=True).returncode == 0


def _import(address: Path, layer: Path, config: dict[str, Any], names: Sequence[str]) -> None:
    """Imports a root file system as an image of these names."""
    command = ["ctr", "--address", str(address), "--namespace", NAMESPACE, "images"]
    importing = subprocess.Popen(
        [*command, "import", "-"],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert importing.stdin is not None
    with contextlib.suppress(BrokenPipeError), importing.stdin as archive:
        _write_archive(archive, layer, config, names[0])
    importing.stdin = None
    printed, _ = importing.communicate(timeout=DEADLINE_S)
    if importing.returncode:
        raise StepError(printed.decode())
    for name in names[1:]:
        checked([*command, "tag", names[0], name])


def _config(changes: Sequence[str]) -> dict[str, Any]:
    """What the lines of a Dockerfile say, in the words of an image's configuration."""
    parts = [line.partition(" ") for line in changes]
    lines = [(word, value) for word, _, value in parts]
    said = dict(lines)
    return {
        "Env": [value for word, value in lines if word == "ENV"],
        "User": said["USER"],
        "WorkingDir": said["WORKDIR"],
        "Cmd": json.loads(said["CMD"]),
    }


def _write_archive(to: IO[bytes], layer: Path, config: dict[str, Any], name: str) -> None:
    """Writes an image of one layer in the layout of OCI (opencontainers/image-spec)."""
    with layer.open("rb") as content:
        diff = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
    image = _document(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [diff]},
        }
    )
    kind = "application/vnd.oci.image"
    manifest = _document(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _descriptor(image, f"{kind}.config.v1+json"),
            "layers": [
                {
                    "mediaType": f"{kind}.layer.v1.tar",
                    "digest": diff,
                    "size": layer.stat().st_size,
                }
            ],
        }
    )
    listed = _descriptor(manifest, f"{kind}.manifest.v1+json")
    listed["annotations"] = {"io.containerd.image.name": name}
    with tarfile.open(fileobj=to, mode="w|") as tar:
        _add(tar, "oci-layout", _document({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _document({"schemaVersion": 2, "manifests": [listed]}))
        for blob in (image, manifest):
            _add(tar, f"blobs/sha256/{_digest(blob)}", blob)
        tar.add(layer, f"blobs/sha256/{diff.removeprefix('sha256:')}")


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _document(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _descriptor(content: bytes, media_type: str) -> dict[str, Any]:
    digest = f"sha256:{_digest(content)}"
    return {"mediaType": media_type, "digest": digest, "size": len(content)}
