"""A project that Pulumi runs, and one whose stack is up; each test gets a copy of its own."""

import os

import pytest
from machines.pulumi_project import Project, engine_folder
from stack_settings import STACK, settings

NEEDED = "SUNSPOT_TESTS_NEED_ENGINE"


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project without a stack. Not to be changed."""
    engine = engine_folder()
    if engine is None:
        reason = "Pulumi's CLI is not here: install it, or build it by scripts/engine/build.sh"
        # Where nothing may be left out.
        pytest.fail(reason) if os.environ.get(NEEDED) else pytest.skip(reason)
    return Project.create(tmp_path_factory.mktemp("empty") / "project", engine)


@pytest.fixture(scope="session")
def initialised(empty: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a stack that was never up. Not to be changed."""
    made = empty.copied(tmp_path_factory.mktemp("initialised") / "project")
    made.write_stack(STACK, settings())
    made.pulumi("stack", "init", STACK)
    return made


@pytest.fixture(scope="session")
def up(initialised: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose stack is up. Not to be changed."""
    made = initialised.copied(tmp_path_factory.mktemp("up") / "project")
    # With its preview, as a user types it.
    made.pulumi("up", "-s", STACK, "--yes")
    made.cloud.take_notes()
    return made


@pytest.fixture
def fresh(initialised: Project, tmp_path) -> Project:
    """A project of the test's own, with a stack that was never up."""
    return initialised.copied(tmp_path / "project")


@pytest.fixture
def deployed(up: Project, tmp_path) -> Project:
    """A project of the test's own, whose stack is up."""
    return up.copied(tmp_path / "project")
