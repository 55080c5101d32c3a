"""Our Dockerfiles, built for real on the stand-in for Ray's image."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from machines import PROJECT
from machines.docker import Docker

BUILD_S = 3000.0
DOCKER = PROJECT / "docker"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
IN_CONTAINER = "/run/secrets/certificates.pem"


def pip_configuration(folder: Path) -> Path:
    """This machine's way to the package index, for containers and their builds."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    settings = dict(re.findall(r"^(?:global|install|:env:)\.([\w-]+)='(.*)'$", listed.stdout, re.M))
    kept = {
        name: value
        for name, value in settings.items()
        if name in {"index-url", "extra-index-url", "trusted-host", "timeout", "default-timeout"}
    }
    if CERTIFICATES.exists():
        kept["cert"] = IN_CONTAINER
    path = folder / "pip.conf"
    path.write_text("[global]\n" + "".join(f"{k} = {v}\n" for k, v in kept.items()))
    return path


@dataclass(frozen=True)
class Builder:
    """Builds our Dockerfiles on the stand-in."""

    docker: Docker
    base: str
    pip_configuration: Path

    def build(self, kind: str, **arguments: str) -> str:
        """The built image's name. Raises StepError with the build's output."""
        tag = f"sunspot-{kind}:test"
        given = {"BASE_IMAGE": self.base, **arguments}
        self.docker(
            *("build", "--network=host", "--progress=plain", "--tag", tag),
            *("--file", DOCKER / f"{kind}.Dockerfile"),
            *(f"--build-arg={name}={value}" for name, value in given.items()),
            *("--secret", f"id=pip,src={self.pip_configuration}"),
            *([f"--secret=id=certificates,src={CERTIFICATES}"] if CERTIFICATES.exists() else []),
            DOCKER,
            timeout=BUILD_S,
        )
        return tag

    def run(self, tag: str, *command: str) -> str:
        return self.docker("run", "--rm", "--network=none", tag, *command)

    def packages(self, tag: str) -> dict[str, str]:
        listed = json.loads(self.run(tag, "pip", "list", "--format=json"))
        return {package["name"].lower(): package["version"] for package in listed}
