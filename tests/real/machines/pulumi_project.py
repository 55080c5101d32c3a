"""A copy of this project that the real Pulumi CLI runs, with a state and a cloud of its own."""

import base64
import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from azure_model.cloud import Cloud

ROOT = Path(__file__).resolve().parents[3]
ENGINE = Path(os.environ.get("SUNSPOT_ENGINE_DIR", ROOT / ".cache" / "engine")).resolve() / "bin"
TESTS = ROOT / "tests"
# Each stand-in for a provider's plugin: its module, and where it finds its folder.
CLOUD_VARIABLE = "SUNSPOT_TEST_CLOUD"
KUBERNETES_VARIABLE = "SUNSPOT_TEST_KUBERNETES"
PLUGINS = {
    "pulumi-resource-azure-native": ("azure_model.provider", CLOUD_VARIABLE),
    "pulumi-resource-kubernetes": ("kubernetes_model.provider", KUBERNETES_VARIABLE),
}
PROGRAM = (
    "__main__.py",
    "Pulumi.yaml",
    "requirements.txt",
    "infra",
    "cloud_init",
    "sunspot",
)
DEADLINE_S = 600

_KEY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(range(32))).decode()
PUBLIC_KEY = f"ssh-ed25519 {_KEY} someone@example"


def engine_folder() -> Path | None:
    """Where Pulumi's CLI is: built by scripts/engine/build.sh, or installed; None if neither."""
    if (ENGINE / "pulumi").is_file():
        return ENGINE
    installed = shutil.which("pulumi")
    return None if installed is None else Path(installed).parent


@dataclass(frozen=True)
class Project:
    """A folder with the program, its stack files, the state and the cloud.

    A copy of it is independent.
    """

    folder: Path
    engine: Path

    @classmethod
    def create(cls, folder: Path, engine: Path) -> Self:
        """A project without stacks."""
        project = cls(folder, engine)
        for part in ("program", "state", "azure", "kubernetes"):
            (project.folder / part).mkdir(parents=True)
        for name in PROGRAM:
            source = ROOT / name
            if source.is_dir():
                # Bytecode is copied, except files that are still being written.
                ignored = shutil.ignore_patterns("*.pyc.*")
                shutil.copytree(source, project.program / name, ignore=ignored)
            else:
                shutil.copy2(source, project.program)
        (project.program / ".venv").symlink_to(sys.prefix)
        _write_plugins(project.folder / "bin")
        return project

    def copied(self, folder: Path) -> Self:
        """The same project, stacks and cloud once more, for a test to change."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return type(self)(folder, self.engine)

    @property
    def program(self) -> Path:
        return self.folder / "program"

    @property
    def cloud(self) -> Cloud:
        """What stands for Azure."""
        return Cloud(self.folder / "azure")

    @property
    def kubernetes(self) -> Path:
        """Where the stand-in for Kubernetes' provider writes."""
        return self.folder / "kubernetes"

    def write_stack(self, name: str, config: dict[str, Any]) -> None:
        """Writes a stack file's settings; what Pulumi itself keeps in it stays."""
        file = self.program / f"Pulumi.{name}.yaml"
        kept = yaml.safe_load(file.read_text()) if file.exists() else {}
        file.write_text(yaml.safe_dump({**kept, "config": config}))

    def environment(self) -> dict[str, str]:
        """What a process needs to find this project's engine, state and cloud, and no other."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PULUMI_", "AZURE_", "ARM_", "SUNSPOT_"))
        }
        # The Python host of the built engine takes the first Python on the PATH.
        own = (Path(sys.prefix) / "bin", self.folder / "bin", self.engine)
        return {
            **kept,
            "PATH": os.pathsep.join([*map(str, own), os.environ["PATH"]]),
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": (self.folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "only for tests",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "1",
            CLOUD_VARIABLE: str(self.folder / "azure"),
            KUBERNETES_VARIABLE: str(self.kubernetes),
            "NO_COLOR": "1",
        }

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        """Runs `pulumi`; what it printed. With `fails`, it must end with an error."""
        ended = subprocess.run(
            ["pulumi", *arguments, "--non-interactive"],  # noqa: S607 - the one on our PATH
            cwd=self.program,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        printed = ended.stdout + ended.stderr
        assert (ended.returncode != 0) == fails, f"exit {ended.returncode}:\n{printed}"
        return ended.stdout if not fails else printed

    def up(self, stack: str, *options: str, fails: bool = False) -> str:
        """`pulumi up` without the preview before it; what it printed."""
        arguments = ("up", "-s", stack, "--yes", "--skip-preview", *options)
        return self.pulumi(*arguments, fails=fails)

    def json(self, *arguments: str) -> Any:
        """What `pulumi ... --json` answers."""
        return json.loads(self.pulumi(*arguments, "--json"))

    def state(self, stack: str) -> dict[str, Any]:
        """The stack's state: URN -> resource."""
        exported = json.loads(self.pulumi("stack", "export", "-s", stack))
        return {r["urn"]: r for r in exported["deployment"].get("resources") or []}


def _write_plugins(folder: Path) -> None:
    folder.mkdir()
    path = shlex.quote(str(TESTS))
    for name, (module, variable) in PLUGINS.items():
        # -P: the engine starts it in the program's folder, whose modules are not the provider's.
        command = shlex.join([sys.executable, "-P", "-m", module])
        plugin = folder / name
        plugin.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {command} "${variable}"\n')
        plugin.chmod(0o755)
