"""Prometheus and Grafana: their images, and the files that configure them wherever they run.

`prometheus.yml` and `grafana/` are used as they are on a head on Azure, where all servers share
the loopback address. Where each is a container, `between_containers` replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sunspot.ray import ports
from sunspot.ray.start import LOOPBACK

# By digest: a tag can be moved. Both as Renovate reports them (2025-10).
PROMETHEUS = (
    "docker.io/prom/prometheus:v3.7.1"
    "@sha256:ff7e389acbe064a4823212a500393d40a28a8f362e4b05cbf6742a9a3ef736b2"
)
GRAFANA = (
    "docker.io/grafana/grafana:12.2.1"
    "@sha256:35c41e0fd0295f5d0ee5db7e780cf33506abfaf47686196f825364889dee878b"
)

FOLDER = Path(__file__).parent
"""What is in it lies in /etc/sunspot on a head on Azure."""


def files() -> dict[str, Path]:
    """The files, by their paths relative to `FOLDER`."""
    kinds = ("*.yml", "*.ini", "*.json")
    found = sorted(path for kind in kinds for path in FOLDER.rglob(kind))
    return {path.relative_to(FOLDER).as_posix(): path for path in found}


def between_containers(text: str, hosts: Mapping[str, str]) -> str:
    """A file's text for servers that are containers, instead of on one loopback address.

    Args:
        text: the file's text.
        hosts: the host of each server that it names, by the server's name in `ports`.

    Raises:
        ValueError: the text does not name one of these servers.
    """
    for name, host in hosts.items():
        number = ports.get(name).number
        here, there = f"{LOOPBACK}:{number}", f"{host}:{number}"
        if here not in text:
            raise ValueError(f"the file does not name {here}")
        text = text.replace(here, there)
    return text
