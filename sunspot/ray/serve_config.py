"""What is deployed with Ray Serve: its config, from a file or from MODULE:APP, made safe."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sunspot import yaml_files
from sunspot.errors import UsageError
from sunspot.ray import ports
from sunspot.ray.jobs import JobClient
from sunspot.ray.start import LOOPBACK

# Serve's own default is a proxy on every node that has a replica (ServeDeploySchema, 2.60).
PROXIES = "HeadOnly"
# Not only the address that callers use, so that `sunspot forward` and the head's own processes
# reach it as well.
EVERYWHERE = "0.0.0.0"  # noqa: S104 - only where a firewall stands before it

_APP = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_NUMBERS = range(1, 65_536)


def read(source: str) -> dict[str, Any]:
    """What is deployed, as a config of Serve's.

    Args:
        source: a file in Serve's format (YAML or JSON), or MODULE:APP.

    Raises:
        UsageError: there is no such file, or it is not a config.
    """
    config: dict[str, Any]
    if Path(source).is_file():
        config = _read(Path(source))
    elif _APP.fullmatch(source):
        config = {"applications": [{"name": "default", "import_path": source}]}
    else:
        raise UsageError(
            f"{source!r} is neither a file that exists nor MODULE:APP, such as main:app"
        )
    _mapping(config, "http_options", source)
    return config


def load(source: str, port: int | None, *, is_open: bool = False) -> dict[str, Any]:
    """The config that Serve's REST API takes; its ingress is on the head's loopback address.

    Args:
        source: as for `read`.
        port: the ingress's port; by default the config's, or else that of the ports' table.
        is_open: whether a firewall lets named networks, and nobody else, connect to the table's
            port: on that one, the ingress listens on every address of the head.

    Raises:
        UsageError: there is no such file, it is not a config, or its ingress would listen on
            every address of the head with nothing before it.
    """
    config = read(source)
    http = config["http_options"]
    usual = ports.get("serve").number
    http["port"] = port if port is not None else http.get("port", usual)
    is_guarded = is_open and http["port"] == usual
    http.setdefault("host", EVERYWHERE if is_guarded else LOOPBACK)
    config.setdefault("proxy_location", PROXIES)
    _check_ingress(config, source, is_guarded=is_guarded)
    return config


def send_working_dirs(
    client: JobClient, config: dict[str, Any], working_dir: str, note: Callable[[str], None]
) -> None:
    """Sends each application's files, and puts their URIs into the config.

    Args:
        client: the cluster's job API.
        config: as from `load`.
        working_dir: the folder of the applications that name none.
        note: called with what is uploaded.

    Raises:
        UsageError: a folder is missing or too large.
    """
    sent: dict[str, dict[str, Any]] = {}
    for app in config["applications"]:
        env = _mapping(app, "runtime_env", f"application {app.get('name', 'default')!r}")
        env.setdefault("working_dir", working_dir)
        key = repr((env["working_dir"], env.get("excludes")))
        if key not in sent:
            client.send_working_dir(env, note)
            sent[key] = env
        elif "working_dir" in sent[key]:
            env["working_dir"] = sent[key]["working_dir"]
        else:  # an empty folder
            del env["working_dir"]


def _read(file: Path) -> dict[str, Any]:
    config = yaml_files.load_given(file)
    apps = config.get("applications") if isinstance(config, dict) else None
    if not isinstance(apps, list) or not all(isinstance(app, dict) for app in apps):
        raise UsageError(
            f"{file} is not a config of Ray Serve: it needs a list 'applications', each with an "
            "import_path, as `serve build MODULE:APP` writes it"
        )
    return config


def _mapping(parent: dict[str, Any], key: str, source: str) -> dict[str, Any]:
    """The mapping of that key, which the parent has afterwards.

    Raises:
        UsageError: it is something else.
    """
    value = parent.get(key)
    if value is None:
        value = parent[key] = {}
    if not isinstance(value, dict):
        raise UsageError(f"{source}: {key} must be a mapping, not {value!r}")
    return value


def _is_everywhere(host: object) -> bool:
    """Whether a socket takes this for every address of a machine, as "0" and "0x0" are too."""
    if host in (None, ""):
        return True
    try:
        found = socket.getaddrinfo(str(host).strip("[]"), None)
    except (OSError, UnicodeError):  # Serve will say what is wrong with it
        return False
    return any(ipaddress.ip_address(address[0]).is_unspecified for *_, address in found)


def _check_ingress(config: dict[str, Any], source: str, *, is_guarded: bool) -> None:
    """Refuses an ingress on every address of the head, unless it is guarded: it knows no token."""
    http = config["http_options"]
    host, port = http["host"], http["port"]
    if not is_guarded and _is_everywhere(host):
        raise UsageError(
            f"{source}: http_options.host {host!r} opens the ingress, which asks for no token, on "
            f"every address of the head. Remove the line (the default is {LOOPBACK}), and put a "
            "gateway before it: docs/serve.md"
        )
    if not isinstance(host, str):
        raise UsageError(f"{source}: http_options.host {host!r} is not an address")
    if type(port) is not int or port not in _NUMBERS:
        raise UsageError(
            f"{source}: port {port!r} is not a number from {_NUMBERS[0]} to {_NUMBERS[-1]}"
        )
    # Serve binds it to [::], whatever the host is (start_grpc_server, 2.60).
    if _mapping(config, "grpc_options", source).get("grpc_servicer_functions"):
        raise UsageError(
            f"{source}: grpc_options.grpc_servicer_functions starts a gRPC ingress, which listens "
            "on every address of the head and asks for no token. Remove it, and serve over HTTP"
        )
