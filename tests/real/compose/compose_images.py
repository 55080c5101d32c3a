"""The images of a cluster of one host, made here: stand-ins on the one for Ray's.

Prometheus is Debian's, the S3 server is built from its source, Jupyter is the lock's. Grafana is
not to be had here: its stand-in only says that it is healthy.
"""

from pathlib import Path

from compose_engine import S3_SERVER
from machines import PROJECT
from machines.docker import Docker
from machines.kept import key

LOCKED = PROJECT / "docker" / "requirements" / "jupyter.txt"

_GRAFANA = """
FROM {base}
USER 0
RUN mkdir -p /srv/grafana/api && echo '{{"database": "ok"}}' > /srv/grafana/api/health
USER 1000
ENTRYPOINT ["python3", "-m", "http.server", "--directory", "/srv/grafana", "3000"]
"""
_COPIED = """
FROM {base}
COPY program /usr/local/bin/{name}
"""


def stand_ins(docker: Docker, base: str, work: Path) -> dict[str, str]:
    """Builds the images beside Ray's in an engine; the names that `sunspot:compose` gives them.

    Args:
        docker: the engine, which can have what it built before.
        base: the stand-in for Ray's image, in that engine.
        work: an empty folder.
    """
    programs = {"prometheus": Path("/usr/bin/prometheus"), "s3": S3_SERVER}
    names = {"prometheus": "prometheus", "s3": "versitygw"}
    made = {}
    for service, program in programs.items():
        folder = work / service
        folder.mkdir()
        (folder / "program").write_bytes(program.resolve().read_bytes())
        (folder / "program").chmod(0o755)
        text = _COPIED.format(base=base, name=names[service])
        made[service] = _build(docker, service, folder, text)
    (work / "grafana").mkdir()
    made["grafana"] = _build(docker, "grafana", work / "grafana", _GRAFANA.format(base=base))
    return made


def services(images: dict[str, str]) -> dict[str, str]:
    """Of the images, those of the services beside Ray."""
    return {name: images[name] for name in ("prometheus", "s3", "grafana")}


def _build(docker: Docker, name: str, folder: Path, dockerfile: str) -> str:
    (folder / "Dockerfile").write_text(dockerfile)
    tag = f"local/{name}:{key(dockerfile)}"
    docker("build", "--network=none", "--tag", tag, folder)
    return tag
