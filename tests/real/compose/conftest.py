"""An engine with images for clusters of one host, and the site of the contract that it is."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import CACHE, base_image
from machines.docker import engine
from machines.dockerfiles import Builder, pip_configuration
from machines.network import Network, network

# The contract's tests and what they share.
CONTRACT = str(Path(__file__).parents[2] / "contract")
if CONTRACT not in sys.path:
    sys.path.append(CONTRACT)

import sites  # noqa: E402
from compose_engine import Behind, engine_behind, need_compose  # noqa: E402
from compose_images import services, stand_ins  # noqa: E402
from compose_site import STAGES, compose_site  # noqa: E402
from sites import MARK, Cluster, Site  # noqa: E402

TIMEOUT_S = 1800

# Shared with tests/real/docker, since an image with torch has 6 GB.
STORAGE = CACHE / "engine"
BUILT = "built"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    sites.parametrize(metafunc, {"compose": STAGES}, {})


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{BUILT}(kind): needs the image of docker/ of that kind")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folders = {item.path.parent for item in items}
    if {Path(__file__).parent, Path(__file__).parents[1] / "docker"} <= folders:
        raise pytest.UsageError(
            "tests/real/compose and tests/real/docker use the same engine's storage: "
            "run one after the other"
        )


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def images(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Puts the images into the engine's storage; their names, by service.

    "ray" is that of the nodes. What a test is marked to need of docker/, such as "cuda", is built
    before the engine is in a network of its own, and has that name.
    """
    need_compose()
    base = base_image.base_image()
    kinds = {mark.args[0] for item in request.session.items for mark in item.iter_markers(BUILT)}
    with engine(STORAGE) as docker, tempfile.TemporaryDirectory(prefix="images-") as work:
        name = base_image.load(docker, base)
        builder = Builder(docker, name, pip_configuration(tmp_path_factory.mktemp("pip")))
        built = {kind: builder.build(kind) for kind in sorted(kinds)}
        return {"ray": name, **stand_ins(docker, name, Path(work)), **built}


@pytest.fixture(scope="session")
def lan() -> Iterator[Network]:
    with network() as made:
        yield made


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("compose") / "root"
    made.mkdir()
    return made


@pytest.fixture(scope="session")
def behind(lan: Network, images: dict[str, str], root: Path) -> Iterator[Behind]:
    with engine_behind(lan, 9, STORAGE, marks={MARK: str(root)}) as made:
        yield made


@pytest.fixture(scope="session")
def site(
    behind: Behind, images: dict[str, str], root: Path, request: pytest.FixtureRequest
) -> Site:
    made = compose_site(root, behind, images["ray"], services(images))
    made.prepare()
    return made


@pytest.fixture(scope="session")
def cluster(site: Site) -> Iterator[Cluster]:
    """The cluster that most tests share. One of the last tests takes it down."""
    yield from sites.shared_cluster(site)
