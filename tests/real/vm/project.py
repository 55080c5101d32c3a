"""A user's folder with the stack `dev` on Azure, and the `sunspot` command run in it.

Pulumi's engine has tests of its own; here a few lines stand in for it, which tell where the head
is.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from azure_model.pulumi_state import exported, group, machine
from machines.needs import SYSTEM_PATH
from machines.processes import checked, environment
from network import Network

from sunspot import stack as stacks
from sunspot.targets.azure.plan import AzurePlan, plan

ROOT = Path(__file__).resolve().parents[3]
STACK = "dev"
ENGINE = """#!/bin/sh
case " $* " in
*" version "*) echo v3.250.0 ;;
*" stack export "*) cat {state} ;;
*) echo "not here: pulumi $*" >&2; exit 1 ;;
esac
"""
COMMAND_S = 900.0


@dataclass(frozen=True)
class Project:
    """The folder, with the user's key and his records beside it."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "Project":
        made = cls(folder)
        made.bin.mkdir(parents=True)
        _make_key(made.key)
        made.program.mkdir()
        shutil.copy(ROOT / "Pulumi.yaml", made.program)
        settings = yaml.safe_load((ROOT / f"Pulumi.{STACK}.yaml").read_text())
        settings["config"] |= {
            "sunspot:target": "azure",
            "sunspot:access": {"ssh_public_key_file": str(made.public_key)},
        }
        (made.program / f"Pulumi.{STACK}.yaml").write_text(yaml.safe_dump(settings))
        engine = made.bin / "pulumi"
        engine.write_text(ENGINE.format(state=made.state))
        engine.chmod(0o755)
        made.state.write_text(json.dumps(_exported(made.plan())))
        return made

    @property
    def program(self) -> Path:
        return self.folder / "project"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def state(self) -> Path:
        return self.bin / "state.json"

    @property
    def key(self) -> Path:
        return self.bin / "key"

    @property
    def public_key(self) -> Path:
        return self.bin / "key.pub"

    def plan(self) -> AzurePlan:
        """The stack as it stands on Azure."""
        return plan(stacks.load(STACK, self.program), self.program)

    def sunspot(self, network: Network, *arguments: str) -> str:
        """What `sunspot ARGUMENTS`, run in the folder by somebody in that network, prints.

        Raises StepError unless it ends with 0, and TimeoutExpired.
        """
        settings = environment(
            PATH=f"{self.bin}:{SYSTEM_PATH}",
            HOME=str(self.bin),
            SUNSPOT_STATE_DIR=str(self.bin / "records"),
        )
        command = [sys.executable, "-m", "sunspot.cli", *arguments]
        inside = network.command("env", f"--chdir={self.program}", *command)
        return checked(inside, env=settings, timeout=COMMAND_S)

    def close_tunnel(self) -> None:
        """Ends the tunnel that the commands left for the next one."""
        from sunspot.targets.tunnel import Tunnel

        Tunnel(self.bin / "records" / "azure" / STACK).close()


def _make_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True)


def _exported(made: AzurePlan) -> dict[str, Any]:
    """What `pulumi stack export` tells once the stack is up."""
    assert made.addresses is not None
    cluster, head = made.cluster_name, made.addresses.head_address
    return exported(
        group(cluster),
        machine(cluster=cluster),
        head_private_ip=head,
        job_address="http://127.0.0.1:8265",
        ssh_command=f"ssh sunspot@{head}",
    )
