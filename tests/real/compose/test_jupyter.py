"""Jupyter: opened by its token, and a notebook in it that uses the cluster."""

from collections.abc import Iterator

import compose_site
import pytest
from compose_engine import Behind
from compose_images import services
from sites import Site

from sunspot.targets.compose import plan, secret_files

pytestmark = pytest.mark.built("jupyter")

NAME = "notebooks"

NOTEBOOK = """
import nbformat
from nbclient import NotebookClient

cell = '''
import ray
ray.init()

@ray.remote(num_cpus=1)
def where():
    import os
    return os.environ["RAY_NODE_TYPE_NAME"]

print("ran on", ray.get(where.remote()))
'''
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
NotebookClient(notebook, timeout=300, startup_timeout=300).execute()
print(notebook.cells[0].outputs)
"""


@pytest.fixture(scope="module")
def up(site: Site, images: dict[str, str]) -> Iterator[Site]:
    others = {**services(images), "jupyter": images["jupyter"]}
    shape, settings = compose_site.cluster("workers"), compose_site.config(images["ray"], others)
    with compose_site.up(site, NAME, shape, settings) as made:
        yield made


def container(behind: Behind) -> str:
    labels = {"project": plan.project(NAME), "service": "jupyter"}
    filters = [f"--filter=label=com.docker.compose.{key}={one}" for key, one in labels.items()]
    return behind.docker("ps", "--quiet", *filters).strip()


def code(behind: Behind, url: str) -> str:
    show = ("--silent", "--output", "/dev/null", "--write-out", "%{http_code}")
    return behind.run("curl", *show, "--max-time", "20", url).stdout


def test_it_is_opened_by_its_token_and_by_no_other(up: Site, behind: Behind) -> None:
    url = f"{up.status(NAME)['services']['Jupyter'].removesuffix('/lab')}/api/status"
    token = (up.state / "compose" / NAME / secret_files.JUPYTER_TOKEN).read_text()
    assert code(behind, url) == "403"
    assert code(behind, f"{url}?token=wrong") == "403"
    assert code(behind, f"{url}?token={token}") == "200"


def test_the_dashboard_command_prints_its_link(up: Site) -> None:
    done = up("dashboard", NAME)
    token = (up.state / "compose" / NAME / secret_files.JUPYTER_TOKEN).read_text()
    assert f"/lab?token={token}" in done.stderr
    assert token not in up("status", NAME).stdout


def test_a_notebook_uses_the_cluster(up: Site, behind: Behind) -> None:
    ran = behind.docker("exec", container(behind), "python", "-c", NOTEBOOK)
    assert "ran on" in ran
