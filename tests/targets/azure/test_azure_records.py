"""Records of clusters on Azure: of a stack that is up in two places, of another version, broken."""

import json

import pytest
from azure_stacks import run, up
from local_stacks import stack as local_stack
from local_stacks import write as write_local
from ssh_server import needs_sshd

from sunspot.errors import SunspotError
from sunspot.targets.azure.records import Record
from sunspot.targets.clusters import find
from sunspot.targets.local.target import LocalTarget


@needs_sshd
def test_a_stack_that_is_up_in_two_places_needs_its_target_named(place, tmp_path):
    up(place)
    clusters = LocalTarget(tmp_path / "state" / "clusters").clusters
    write_local(clusters, local_stack(name="x"))
    for command in (["status"], ["submit", "--stack", "x", "--", "true"], ["down"], ["down", "x"]):
        result = run(*command)
        assert result.exit_code == 2, result.output
        message = " ".join(result.stderr.split())
        assert "stack 'x' is up on several targets (local, azure)" in message
        assert "--target local or --target azure" in message
    assert place.target.names() == ["x"]

    result = run("status", "--target", "azure", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["target"] == "azure"
    assert run("down", "x", "--target", "local").exit_code == 0
    assert not (clusters / "x").exists()
    assert find("x").target.name == "azure"
    assert run("status", "--target", "local").exit_code == 1
    assert run("status", "--target", "cloud").exit_code == 2


def test_status_as_json_tells_that_the_head_cannot_be_reached(place):
    place.fake.now = place.fake.made
    place.fake.outputs["ssh_command"] = "ssh -p 1 nobody@127.0.0.1"
    result = run("status", "x", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["problem"]


def test_down_of_a_broken_record_says_what_is_wrong_with_pulumi(place):
    place.target.records.folder("x").mkdir(parents=True)
    (place.target.records.folder("x") / "stack.json").write_text("{")
    place.fake.error = SunspotError("not logged in")
    result = run("down", "x")
    assert result.exit_code == 1
    assert "not logged in" in result.stderr


@pytest.mark.parametrize("stack", [{"name": "x"}, {"name": "x", "settings": {"moon": {}}}, {}])
def test_a_record_of_another_version_is_one_line(place, stack):
    place.target.records.write("x", Record(folder=str(place.project), stack=stack, outputs={}))
    with pytest.raises(SunspotError, match="another version of Sunspot") as caught:
        place.target.stack("x")
    assert "stack.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_program_that_cannot_be_run_is_not_blamed_on_the_state_directory(place):
    place.fake.error = PermissionError(13, "Permission denied", "/opt/pulumi")
    result = run("up", "x")
    assert result.exit_code == 1
    assert "/opt/pulumi" in result.stderr
