"""Commands about Ray Serve: deploy applications, show them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sunspot import console
from sunspot.cli import interrupts
from sunspot.cli.base import AsJson, Commands, Subcommands, UpStack, UpTarget, connect
from sunspot.errors import SunspotError, UsageError
from sunspot.targets import abilities, clusters, node_types
from sunspot.targets.callers import Callers, Opens
from sunspot.targets.forwarding import Forwarding
from sunspot.targets.protocol import Target, silent

if TYPE_CHECKING:
    from sunspot.ray.serving import Instance

# What Serve reports where a program started it without an address (controller.py, 2.60), whatever
# its ingress listens on.
_UNKNOWN = "0.0.0.0"  # noqa: S104 - only compared

commands = Commands(
    name="serve",
    cls=Subcommands,
    help="Deploy applications of Ray Serve, and show them.",
    epilog="Example: sunspot serve deploy main:app",
    no_args_is_help=True,
)


@commands.command(
    epilog="Example: sunspot serve deploy main:app\nExample: sunspot serve deploy serve.yaml hybrid"
)
def deploy(
    what: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG|MODULE:APP",
            help="A file in Serve's format, as `serve build` writes it, or an application.",
        ),
    ],
    stack: UpStack = None,
    target_name: UpTarget = None,
    working_dir: Annotated[
        str,
        typer.Option(help="Folder (or URI of a zip) of the applications that name none."),
    ] = ".",
    port: Annotated[
        int | None,
        typer.Option(help="Port of the ingress, on the head; by default the config's, or 8000."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=1.0, help="How many seconds to wait until they run; Serve goes on then."),
    ] = 1200.0,
) -> None:
    """Deploy applications and wait until they run; what was deployed before is replaced.

    The ingress runs on the head, on its loopback address unless the stack
    opens it to networks. Ctrl-C stops the waiting only.
    """
    from sunspot.ray import hints, serve_config, serve_files
    from sunspot.ray.api_errors import RefusedError
    from sunspot.ray.serving import FailedError, ServeClient

    target, name = clusters.find(stack, target_name)
    callers = _callers(target, name)
    config = serve_config.load(what, port, is_open=callers is not None)
    client = connect(target, name)
    serve = ServeClient(client)
    with console.progress("asking Serve"):
        before = serve.instance()
    _check_address(target, name, before, config["http_options"])
    serve_config.send_working_dirs(client, config, working_dir, console.note)
    names = [app.get("name", "default") for app in config["applications"]]
    if gone := sorted(before.applications.keys() - set(names)):
        console.note(f"no longer deployed, since the config does not have them: {', '.join(gone)}")
    with console.progress("deploying"):
        kept = serve_files.keep(client, config)
    try:
        with console.progress("deploying") as progress:
            serve.deploy(config, before)
            found = serve.wait(names, progress, before, timeout_s=timeout)
            serve_files.release(client, config, console.note)
    except (RefusedError, UsageError):
        serve_files.stop(client, kept, console.note)
        raise
    except FailedError as error:
        types = node_types.of(target, target.stack(name))
        told = [str(error), *hints.of_application(str(error), types)]
        raise SunspotError(". ".join(told)) from error
    except KeyboardInterrupt:
        console.fail(
            f"interrupted; Serve goes on deploying {', '.join(names) or 'nothing'}. To see how far "
            f"it is: sunspot serve status {name}"
        )
        sys.exit(interrupts.INTERRUPTED)
    _print_applications(target, name, found, callers)


@commands.command(epilog="Example: sunspot serve status --json | jq '.applications[].status'")
def status(stack: UpStack = None, target_name: UpTarget = None, as_json: AsJson = False) -> None:
    """Show the applications, the replicas and the nodes that they are on, and the ingress."""
    from sunspot import serve_status as view
    from sunspot.ray.serving import ServeClient

    target, name = clusters.find(stack, target_name)
    client = connect(target, name)
    found = ServeClient(client).instance()
    nodes = {node["node_id"]: node["node_name"] for node in client.state("nodes")}
    if as_json:
        print(json.dumps(view.to_json(name, found, nodes), indent=2))
    elif found.runs:
        view.show(found, nodes, console.out)
    else:
        console.out.print(f"Serve does not run on {name!r}", markup=False)
        console.note(f"start it with: sunspot serve deploy MODULE:APP {name}")


def _check_address(target: Target, name: str, before: Instance, wanted: dict[str, Any]) -> None:
    """Checks that the ingress can have the address that it should have.

    Raises:
        UsageError: Serve runs and has another, or another process listens there.
    """
    from sunspot.ray.serving import port_taken

    host, port = wanted["host"], wanted["port"]
    if not before.runs:
        if _listens(target, name, host, port):
            raise port_taken(f"{host}:{port}")
    elif before.port != port or before.host not in (host, _UNKNOWN):
        raise UsageError(
            f"Serve runs on {name!r} with its ingress on {before.host}:{before.port}, and cannot "
            f"change that to {host}:{port} while it runs: deploy with that address, or end Serve "
            "first, with all its applications (`serve shutdown`, docs/serve.md)"
        )


def _listens(target: Target, name: str, host: str, port: int) -> bool:
    """Whether something listens on a port of the head, where that can be asked.

    That is on its loopback address only: another host of a config is for Serve to try.
    Serve would not notice another Serve there, since both share the port (SO_REUSEPORT, 2.60).
    """
    from sunspot.ray.serve_config import EVERYWHERE
    from sunspot.ray.start import LOOPBACK

    way = abilities.find(target, Forwarding)
    if way is None or host not in (LOOPBACK, "localhost", EVERYWHERE):
        return False
    try:
        with way.forward(name, port, None, silent):
            return True
    except UsageError:
        return False


def _callers(target: Target, name: str) -> Callers | None:
    way = abilities.find(target, Opens)
    return None if way is None else way.callers(name)


def _print_applications(
    target: Target, name: str, found: Instance, callers: Callers | None
) -> None:
    from sunspot import serve_status as view
    from sunspot.ray.serve_config import EVERYWHERE

    for app in found.applications.values():
        where = f"{view.address(found)}{app.route}" if app.route else "without an address"
        console.out.print(f"{app.name} is {app.status}: {where}", markup=False)
    if callers is not None and found.host == EVERYWHERE:
        console.note(
            f"open to {', '.join(callers.sources)}, without a token, at "
            f"http://{callers.address}:{found.port}"
        )
    to_reach = (
        f"To reach it: sunspot forward {name} {found.port}"
        if abilities.find(target, Forwarding)
        else "Jobs on the head reach it"
    )
    console.note(
        f"the address is the head's own. {to_reach} · replicas: sunspot serve status {name}"
    )
