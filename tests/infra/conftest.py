"""What the program makes of the shipped stacks, and of one with everything."""

import pytest
from azure_model.pulumi_mocks import Run
from builds import SHIPPED, build, group, make_stack, run_shipped


@pytest.fixture(params=SHIPPED)
def shipped(request: pytest.FixtureRequest) -> Run:
    """What each shipped stack file makes."""
    return run_shipped(request.param)


@pytest.fixture(scope="session")
def rich() -> Run:
    """A stack with all that can be asked for together, in a network of its own."""
    return build(
        make_stack(
            group("fixed", min_workers=2, max_workers=2),
            group("steady", market="on-demand", min_workers=1, max_workers=1),
            group("gpu", "Standard_NC4as_T4_v3", min_workers=0, max_workers=4),
            group("both", market="spot-with-fallback", min_workers=1, max_workers=3),
            head="Standard_NC4as_T4_v3",
            name="rich",
            access={
                "public_ip": True,
                "ssh_cidrs": ["203.0.113.7/32"],
                "serve_cidrs": ["10.1.2.0/24"],
                "bastion": True,
            },
            owner="ada",
            tags={"team": "vision"},
        )
    )
