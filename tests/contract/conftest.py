"""The sites that the contract is run at, and a cluster at each that most tests share."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import azure_site
import local_site
import pytest
import sites
import slurm_jobs_site
import toy_site
from sites import Cluster, Site
from ssh_server import needs_sshd

MAKE: dict[str, Callable[[Path], Site]] = {
    "local": local_site.local_site,
    "azure": azure_site.azure_site,
    "slurm": slurm_jobs_site.slurm_jobs_site,
    "toy": toy_site.toy_site,
}
STAGES = {
    "local": local_site.STAGES,
    "azure": azure_site.STAGES,
    "slurm": slurm_jobs_site.STAGES,
    "toy": toy_site.STAGES,
}
NEEDS = {"azure": [needs_sshd], "slurm": [slurm_jobs_site.needs_its_turn]}
TIMEOUT_S = 900
# Of the processes that a node's start waits for: the GCS, the raylet, the dashboard.
RAY_LOGS, LINES = ("gcs_server.out", "raylet.out", "dashboard.log"), 60


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    stages = dict(STAGES)
    if {"refusal", "second", "job_name"} & set(metafunc.fixturenames):
        # Refusals, a second cluster and jobs that are followed or stopped: in the commands, not in
        # the target. So for the toy, which shows how little a target needs, they prove nothing new.
        del stages["toy"]
    sites.parametrize(metafunc, stages, NEEDS)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marked as they are collected: -m looks at the marks before `modifyitems` has run last."""
    item.add_marker(pytest.mark.integration)
    item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Site after site, and at each in the order of the file."""
    ours = [at for at, item in enumerate(items) if Path(__file__).parent in item.path.parents]
    order = list(MAKE)
    tests = sorted((items[at] for at in ours), key=lambda item: _site(item, order))
    for at, test in zip(ours, tests, strict=True):
        items[at] = test


def _site(item: pytest.Item, order: list[str]) -> int:
    callspec = getattr(item, "callspec", None)
    return -1 if callspec is None else order.index(callspec.params["site"])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shows with a failure what the site's machines have printed, and what Ray says there."""
    report = yield
    site = getattr(item, "funcargs", {}).get("site")
    if report.failed and isinstance(site, Site):
        _add(report, site.root, "azure/*/console")
        _add(report, site.root, "shared/*/logs/*")
        for folder, name in itertools.product(site.temp_dirs, RAY_LOGS):
            _add(report, folder, f"**/logs/{name}", lines=LINES)
    return report


def _add(report: pytest.TestReport, folder: Path, pattern: str, *, lines: int = 0) -> None:
    """Adds files, or so many of their last lines, to what is shown with a failure."""
    with contextlib.suppress(OSError):  # a `down` that was cut off goes on, and removes them
        for file in sorted(folder.glob(pattern)):
            told = file.read_text(errors="replace").splitlines()[-lines:]
            report.sections.append((str(file), "\n".join(told)))


@pytest.fixture(scope="session")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    root = tmp_path_factory.mktemp(request.param) / "root"
    root.mkdir()
    made = MAKE[request.param](root)
    made.prepare()
    return made


@pytest.fixture(scope="session")
def cluster(site: Site) -> Iterator[Cluster]:
    """The cluster that most tests share. One of the last tests takes it down."""
    yield from sites.shared_cluster(site)
