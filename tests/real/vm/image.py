"""The nodes' image, in a registry's folder: the stand-in for Ray's image, and Sunspot in it."""

import shutil
from pathlib import Path

import requests
from machines import CACHE, base_image
from machines.docker import engine
from machines.registry import registry
from project import ROOT

NAME = "sunspot/ray"
DOCKERFILE = """
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY sunspot /home/ray/sunspot
ENV PYTHONPATH=/home/ray
"""
BUILD_S = 900.0
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def published(context: Path) -> tuple[Path, str]:
    """Builds and pushes the image; the registry's folder, and NAME@DIGEST."""
    base = base_image.base_image()
    context.mkdir()
    (context / "Dockerfile").write_text(DOCKERFILE)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "sunspot", context / "sunspot", ignore=ignored)
    with engine(CACHE / "engine") as docker, registry(base.registry_storage) as server:
        reference = server.reference(f"{NAME}:vm")
        name = base_image.load(docker, base)
        docker("build", "--quiet", f"--build-arg=BASE_IMAGE={name}", "--tag", reference, context)
        docker("push", "--quiet", reference, timeout=BUILD_S)
        url = f"http://{server.address}/v2/{NAME}/manifests/vm"
        answer = requests.head(url, headers={"Accept": MANIFEST}, timeout=30)
        answer.raise_for_status()
        return base.registry_storage, f"{NAME}@{answer.headers['Docker-Content-Digest']}"
