"""Who may connect to Serve on a head on Azure."""

from azure_stacks import up

from sunspot.targets.callers import Callers


def test_nobody_may_use_serve_unless_the_stack_lists_networks(place):
    place.fake.outputs["head_address"] = "203.0.113.9"
    up(place)
    assert place.target.callers("x") is None
    place.target.down("x", lambda _line: None)
    file = place.project / "Pulumi.x.yaml"
    file.write_text(f"{file.read_text()}    serve_cidrs: [10.1.2.0/24]\n")
    up(place)
    found = place.target.callers("x")
    assert found == Callers(address="203.0.113.9", sources=("10.1.2.0/24",))
