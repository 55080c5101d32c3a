"""The wheel holds all that its code imports, and works without the project's folder."""

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OURS = {path.parent.name for path in ROOT.glob("*/__init__.py")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The folder that the wheel unpacks to."""
    built, folder = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return folder


def imported(file):
    """The names of ours that a module imports; one may be a module's or that of a thing in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, f"{node.module}.{alias.name}") for alias in node.names)


def is_module(folder, name):
    path = folder.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_every_import_of_ours_is_in_it(wheel):
    missing = {
        f"{file.relative_to(wheel)}: {name}"
        for file in wheel.rglob("*.py")
        for module, name in imported(file)
        if module.partition(".")[0] in OURS
        and not is_module(wheel, module)
        and not is_module(wheel, name)
    }
    assert missing == set()
    assert len(list(wheel.rglob("*.py"))) > 50


def test_every_file_that_a_machine_gets_is_in_it(wheel):
    def files(folder):
        kinds = ("files", "baking_files")
        folders = [folder / "cloud_init" / kind for kind in kinds]
        found = [path for part in folders for path in part.rglob("*") if path.is_file()]
        found += [p for p in (folder / "sunspot/monitoring").rglob("*.*") if p.suffix != ".pyc"]
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}

    assert files(wheel) == files(ROOT)


def test_user_data_is_rendered_from_it(wheel):
    script = f"""
import json, sys
sys.path.insert(0, {str(wheel)!r})
from sunspot.cli.app import app
app(["preview", "hybrid", "--json", "--show", "user-data", "head"], standalone_mode=False)
import cloud_init, sunspot
print(json.dumps([cloud_init.__file__, sunspot.__file__]), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["node_type"] == "head"
    places = json.loads(done.stderr.splitlines()[-1])
    assert all(Path(place).is_relative_to(wheel) for place in places)
