"""How long a head takes to boot: with Sunspot's user data, and with an installation by pip.

Two emulated virtual machines of tests/real/vm boot one after the other. One is the head of the
stack `dev` as Azure would boot it, from a disk that holds Docker and the container image, as one of
`sunspot bake` does. With --plain it is a disk without them: Docker comes from packages, the image
from a registry. The other installs Ray as one would by hand, on the plain disk: Python from
packages, `pip install "ray[default]"`, `ray start --head`. All take packages, image and wheels from
this machine, so nothing waits for a network; and all are emulated, so computation is some ten times
slower than on Azure.

The seconds count from the kernel's start to a raylet that reports that it is healthy.

    python benchmarks/boot.py                 # as root; some 6 minutes a pair
    python benchmarks/boot.py --plain --pairs 1
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import _options
from _bars import Phase, picture
from _pairs import compare

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/real"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/real/vm"))
import cluster  # pyright: ignore[reportMissingImports]
import dev_nodes  # pyright: ignore[reportMissingImports]
import disk  # pyright: ignore[reportMissingImports]
from azure_model.http_service import running
from machine import Machine  # pyright: ignore[reportMissingImports]

from sunspot.ray import ports

ROOT = Path(__file__).resolve().parents[1]
PAIRS = 3
AIM = 1 / 3
PATIENCE_S = 3600.0
WHEELS = disk.CACHE / "wheels"
REQUIREMENTS = ROOT / "docker" / "requirements" / "ray.txt"
WHEELS_PORT = 8000
AGENT = ports.get("dashboard-agent").number
HEALTHY = f"http://127.0.0.1:{AGENT}/api/local_raylet_healthz"

# What Sunspot's nodes have for a slow agent (sunspot/node/raylet.py): without it a raylet on an
# emulated machine always ends after 15 s.
AGENT_PORT_WRITER = """#!/bin/bash
# To start a program, even `sleep`, takes an emulated machine 30 ms.
exec {never}<> <(:)
while :; do
    read -rt 6 -u "$never"
    for folder in /proc/[0-9]*; do
        name= && { read -r name <"$folder/comm"; } 2>/dev/null
        [ "$name" = raylet ] || continue
        mapfile -d '' -t words <"$folder/cmdline"
        for word in "${words[@]}"; do
            case $word in
            --node_id=*) node=${word#*=} ;;
            --session_dir=*) session=${word#*=} ;;
            esac
        done
        file=$session/dashboard_agent_listen_port_$node
        [ -e "$file" ] && continue
        # A raylet that reads it while it is empty ends.
        echo -n PORT >"$file.whole"
        mv --no-clobber "$file.whole" "$file"
    done
done
""".replace("PORT", str(AGENT))

# The end of each step goes to a file, in seconds since the kernel's start.
INSTALLER = """#!/bin/sh
set -eux
done_with() {{ echo "$1 $(cut -d ' ' -f 1 /proc/uptime)" >>/var/log/peer; }}
trap '[ $? = 0 ] || done_with failed' EXIT
done_with cloud-init
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
apt-get update
apt-get install --yes --no-install-recommends python3-venv
done_with packages
python3 -m venv /opt/ray
/opt/ray/bin/pip install --quiet --no-index --trusted-host {host} \\
    --find-links http://{host}:{port}/ -U 'ray[default]'
done_with pip
systemd-run --unit=agent-port /usr/local/sbin/agent-port
systemd-run --unit=peer --property=Restart=always --property=RestartSec=10 {settings} \\
    /opt/ray/bin/ray start --head --block --disable-usage-stats
until curl --fail --silent --max-time 5 --output /dev/null {healthy}; do sleep 2; done
done_with ray
"""


def ours(site: cluster.Site, *, plain: bool) -> list[Phase]:
    """Boot the head of the stack and return its phases."""
    with site.boot_as(replace(site.seeds["head"], disk="plain" if plain else "prepared")) as head:
        head.wait("Ray runs", head.runs_ray, timeout_s=PATIENCE_S)
        written = json.loads(head.ssh("cat /var/log/sunspot/boot.json"))
    phases = [Phase(one["phase"], one["start"], one["seconds"]) for one in written]
    return [Phase("cloud-init", 0, min(one.start for one in phases)), *phases]


def peer(site: cluster.Site) -> list[Phase]:
    """Boot a VM that installs Ray by pip and return its phases."""
    seed = site.seeds["head"]
    peer_seed = replace(seed, hostname="peer", user_data=_installing(seed.gateway), disk="plain")
    with site.boot_as(peer_seed) as machine, _wheels(site):
        marks = machine.wait("Ray runs", lambda: _ended(machine), timeout_s=PATIENCE_S)
        if "failed" in marks:
            sys.exit(machine.ssh("sudo tail --lines=30 /var/log/peer.log"))
    ends = [(name, float(end)) for name, end in map(str.split, marks.splitlines())]
    starts = [0.0, *(end for _, end in ends)]
    return [
        Phase(name, start, end - start) for (name, end), start in zip(ends, starts, strict=False)
    ]


def _ended(machine: Machine) -> str:
    """Return the ends of the installation's steps once it has ended, "" before."""
    marks = machine.ssh("cat /var/log/peer").strip()
    return marks if marks.splitlines()[-1].startswith(("ray ", "failed ")) else ""


def _installing(gateway: str) -> bytes:
    settings = " ".join(f"--setenv={name}={value}" for name, value in dev_nodes.PATIENCE.items())
    script = INSTALLER.format(host=gateway, port=WHEELS_PORT, settings=settings, healthy=HEALTHY)
    document = {
        "write_files": [
            {"path": f"/usr/local/sbin/{name}", "permissions": "0755", "content": content}
            for name, content in (("install-ray", script), ("agent-port", AGENT_PORT_WRITER))
        ],
        "runcmd": [["sh", "-c", "/usr/local/sbin/install-ray >/var/log/peer.log 2>&1"]],
    }
    return gzip.compress(f"#cloud-config\n{json.dumps(document)}".encode())


@contextlib.contextmanager
def _wheels(site: cluster.Site) -> Iterator[None]:
    """Serve the wheels in the VMs' network."""
    handler = functools.partial(_Quiet, directory=str(WHEELS))
    with site.network.entered():
        server = ThreadingHTTPServer(("", WHEELS_PORT), handler)
    with running(server):
        yield


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass


def _download() -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    wanted = ["--only-binary=:all:", "--require-hashes", "--requirement", str(REQUIREMENTS)]
    subprocess.run([*command, *wanted, "--dest", str(WHEELS)], check=True)


def main() -> None:
    """Run the pairs and print them; the last line is JSON."""
    options = _options.parser(__doc__)
    options.add_argument("--pairs", type=int, default=PAIRS, help=f"default: {PAIRS}")
    options.add_argument("--plain", action="store_true", help="boot ours from the plain disk")
    options.add_argument("--picture", type=Path, metavar="FILE", help="draw the last pair as SVG")
    args = options.parse_args()
    _download()
    drawn: dict[str, list[Phase]] = {}
    heading = f"Sunspot's head, {'plain' if args.plain else 'baked'} disk"

    def apart(heading: str, side: Callable[[cluster.Site], list[Phase]]) -> float:
        """Boot one VM in a site of its own and return the seconds until its Ray runs."""
        with (
            tempfile.TemporaryDirectory(prefix="sunspot-bench-") as name,
            cluster.site(Path(name)) as site,
        ):
            phases = drawn[heading] = side(site)
        for phase in phases:
            print(f"    {phase.name:<12}{phase.start:>8.1f} s {phase.seconds:>8.1f} s", flush=True)
        return max(phase.start + phase.seconds for phase in phases)

    compare(
        "boot",
        lambda: apart(heading, functools.partial(ours, plain=args.plain)),
        lambda: apart("pip at boot", peer),
        args.pairs,
        peer_name="pip at boot",
        aim=round(AIM, 2),
        extra={"disk": "plain" if args.plain else "baked"},
    )
    if args.picture:
        title = "Seconds since the kernel's start, on an emulated machine"
        args.picture.write_text(picture(title, drawn))


if __name__ == "__main__":
    main()
