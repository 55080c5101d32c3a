"""A cluster that Pulumi does not know any more: whether Azure has it, and how it is deleted.

Azure answers as its REST reference has it (Resource Groups - Get, Delete; Resources - List By
Resource Group) and "Track asynchronous Azure operations": a group that does not exist is a 404 with
ResourceGroupNotFound, a deletion a 202 with a Location, which is a 202 until the group is gone.
"""

import functools
from dataclasses import dataclass, field, replace

import pytest
from azure_model.http_service import Reply, Request, serving
from azure_model.pulumi_state import ACCOUNT, GROUP
from azure_model.resource_ids import SUBSCRIPTION
from azure_stacks import declared, run

from sunspot import console
from sunspot.errors import NotUpError, SunspotError
from sunspot.targets.azure import target as azure
from sunspot.targets.azure.credentials import Endpoints
from sunspot.targets.azure.records import Record
from sunspot.targets.azure.remaining import remaining

DISK = f"{GROUP}/providers/Microsoft.Compute/disks/one"
COMMAND = f"az group delete --name sunspot-x --subscription {SUBSCRIPTION}"


@dataclass
class Groups:
    """Azure with one resource group; None where it does not exist."""

    inside: list[str] | None
    polls: int = 2
    refusal: Reply | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        self.asked.append((request.method, request.path))
        if request.path == "/operation":
            self.polls -= 1
            if self.polls:
                return Reply(202, None, {"Location": "/operation", "Retry-After": "0.01"})
            self.inside = None
            return Reply(200)
        assert request.query["api-version"]
        if self.refusal:
            return self.refusal
        if self.inside is None:
            error = {"code": "ResourceGroupNotFound", "message": "could not be found."}
            return Reply(404, {"error": error})
        if request.method == "DELETE":
            return Reply(202, None, {"Location": "/operation", "Retry-After": "0.01"})
        return Reply(200, {"value": [{"id": one} for one in self.inside]})

    @property
    def deleted(self) -> bool:
        return ("DELETE", GROUP) in self.asked


@pytest.fixture
def known(place, principal, monkeypatch):
    """Serves Azure to the command, which has a record of the stack, and Pulumi has not."""
    record = Record(
        folder=str(place.project),
        stack=declared().model_dump(mode="json"),
        outputs={},
        group_id=GROUP,
    )
    place.target.records.write("x", record)
    groups = Groups([DISK])
    with serving(groups) as address:
        endpoints = Endpoints(login=principal.url, management=address)
        ask = functools.partial(remaining, endpoints=endpoints)
        target = replace(place.target, endpoints=endpoints, still_there=ask)
        monkeypatch.setattr(azure, "create", lambda: target)
        yield groups


def names(place):
    return place.target.records.names()


@pytest.mark.parametrize("pulumi", [None, ()])
def test_a_group_that_is_gone_is_forgotten_once_azure_has_said_so(place, known, pulumi):
    place.fake.now = pulumi
    known.inside = None
    result = run("down", "x")
    assert result.exit_code == 0, result.output
    assert "no resource on Azure of it is left" in result.stdout
    assert known.asked == [("GET", f"{GROUP}/resources")]
    assert names(place) == []


@pytest.mark.parametrize("inside", [[DISK], []])
def test_a_group_that_exists_is_told_with_the_command_that_deletes_it(place, known, inside):
    known.inside = inside
    result = run("down", "x")
    assert result.exit_code == 2
    assert "Pulumi has nothing of stack 'x', but Azure has its resource group" in result.stderr
    assert f"{len(inside)} resource" in result.stderr
    assert COMMAND in result.stderr
    assert "sunspot down x --yes" in result.stderr
    assert not known.deleted
    assert names(place) == ["x"]


def test_with_yes_it_is_deleted_and_looked_for(place, known):
    result = run("down", "x", "--yes")
    assert result.exit_code == 0, result.output
    assert "no resource on Azure of it is left" in result.stdout
    assert known.asked[-4:] == [
        ("DELETE", GROUP),
        ("GET", "/operation"),
        ("GET", "/operation"),
        ("GET", f"{GROUP}/resources"),
    ]
    assert names(place) == []


def test_results_are_deleted_only_where_that_is_said(place, known):
    known.inside = [DISK, ACCOUNT]
    result = run("down", "x", "--yes")
    assert result.exit_code == 2
    assert "sunspot down x --yes --delete-storage" in result.stderr
    assert not known.deleted
    assert run("down", "x", "--yes", "--delete-storage").exit_code == 0
    assert known.deleted


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("", 2)])
def test_at_a_terminal_it_asks(place, known, monkeypatch, answer, code):
    monkeypatch.setattr(console, "can_ask", lambda: True)
    known.inside = [DISK, ACCOUNT]
    result = run("down", "x", input=answer)
    assert result.exit_code == code, result.output
    assert "with all that is in it, the results among them,?" not in result.output
    assert "Delete the resource group sunspot-x with all that is in it" in result.stderr
    assert known.deleted == (code == 0)


def test_an_azure_that_cannot_be_asked_keeps_the_record(place, known):
    known.refusal = Reply(500, {"error": {"code": "InternalServerError", "message": "no"}})
    result = run("down", "x")
    assert result.exit_code == 1
    assert "could not be checked" in result.stderr
    assert names(place) == ["x"]


def test_a_deletion_that_azure_refuses_is_told(place, known):
    known.refusal = Reply(409, {"error": {"code": "ScopeLocked", "message": "a lock"}})
    with pytest.raises(SunspotError, match="ScopeLocked"):
        azure.create().delete_left_behind("x", print)
    assert names(place) == ["x"]


def test_a_group_that_went_meanwhile_is_no_error(place, known):
    known.inside = None
    assert azure.create().delete_left_behind("x", print).left == []
    assert names(place) == []


def test_a_record_without_a_group_says_that_only_pulumi_was_asked(place, known):
    place.target.records.write("x", replace(place.target.records.known("x"), group_id=""))
    result = run("down", "x")
    assert result.exit_code == 0
    assert "no resource in Pulumi's state of it is left" in result.stdout
    assert known.asked == []


def test_status_does_not_forget_what_only_the_record_knows(place, known):
    result = run("status", "x")
    assert result.exit_code == 1
    assert "sunspot down x" in result.stderr
    assert names(place) == ["x"]
    with pytest.raises(NotUpError, match="pulumi whoami"):
        azure.create().handle("x")
