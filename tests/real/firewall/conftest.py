"""Hosts behind the program's own rules."""

import os
from collections.abc import Iterator

import pytest
from machines import lan
from site_plan import Site, planned

NEEDED = "SUNSPOT_TESTS_NEED_NETNS"


@pytest.fixture(scope="session")
def site() -> Site:
    """The network that the program would make, with two workers and one that comes late."""
    return planned(workers=3)


@pytest.fixture(scope="module")
def hosts(site: Site) -> Iterator[dict[str, lan.Host]]:
    """The hosts of the site by name, guarded as the program says."""
    if reason := lan.why_not():
        # Where nothing may be left out.
        pytest.fail(reason) if os.environ.get(NEEDED) else pytest.skip(reason)
    with lan.connected(site.hosts) as made:
        for host in made.values():
            site.guard(host)
        yield made
