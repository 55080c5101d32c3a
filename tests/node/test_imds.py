"""The IMDS client, against a stand-in on loopback."""

import time
from collections.abc import Iterator

import pytest
from azure_model.access_tokens import MANAGEMENT, VAULT, access_token
from azure_model.imds import EVENTS, TOKEN, FakeAzure, Scripted, serving

from sunspot.node.azure import imds
from sunspot.node.azure.imds import Imds, ImdsError


@pytest.fixture
def azure() -> Iterator[FakeAzure]:
    with serving(FakeAzure()) as server:
        yield server


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imds, "FIRST_PAUSE_S", 0.01)


def test_a_proxy_of_the_environment_is_not_asked(
    azure: FakeAzure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    assert Imds(azure.url).token(VAULT) == access_token(VAULT)


def test_a_token_is_kept_for_each_resource(azure: FakeAzure) -> None:
    client = Imds(azure.url, client_id="me")
    tokens = [client.token(r) for r in (VAULT, VAULT, MANAGEMENT)]
    assert tokens[0] == tokens[1] == access_token(VAULT) != tokens[2]
    assert [asked.fields["client_id"] for asked in azure.requests] == ["me", "me"]


def test_a_token_that_ends_soon_is_fetched_anew(azure: FakeAzure) -> None:
    azure.token_life_s = imds.TOKEN_MARGIN_S - 10
    client = Imds(azure.url)
    client.token(VAULT)
    client.token(VAULT)
    assert azure.paths() == [TOKEN, TOKEN]


@pytest.mark.parametrize("code", [404, 410, 429, 500, 503])
def test_what_may_pass_is_asked_again(azure: FakeAzure, code: int) -> None:
    azure.answers[TOKEN] += [Scripted(status=code)] * 2
    assert Imds(azure.url).token(VAULT)
    assert [asked.status for asked in azure.requests] == [code, code, 200]


def test_what_is_refused_is_asked_once(azure: FakeAzure) -> None:
    azure.answers[TOKEN].append({"status": 400, "body": "what is it"})
    with pytest.raises(ImdsError, match="HTTP 400 what is it") as caught:
        Imds(azure.url).token(VAULT)
    assert caught.value.status == 400
    assert len(azure.requests) == 1


def test_it_gives_up_after_its_time(azure: FakeAzure) -> None:
    azure.answers[TOKEN] += [Scripted(status=410)] * 100
    with pytest.raises(ImdsError) as caught:
        Imds(azure.url, retry_s=0.1).token(VAULT)
    assert caught.value.status == 410


def test_no_server_is_an_error() -> None:
    with pytest.raises(ImdsError) as caught:
        Imds("http://127.0.0.1:1", retry_s=0).token(VAULT)
    assert caught.value.status is None


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match=r"169\.254\.169\.254"):
        Imds("169.254.169.254")


@pytest.mark.parametrize("answer", ["{}", "[]", '{"access_token": "s3cret", "expires_on": "x"}'])
def test_no_token_is_ever_in_a_message(azure: FakeAzure, answer: str) -> None:
    azure.answers[TOKEN].append({"body": answer})
    with pytest.raises(ImdsError) as caught:
        Imds(azure.url).token(VAULT)
    assert "s3cret" not in str(caught.value)


def test_an_event(azure: FakeAzure) -> None:
    began = time.time()
    event_id = azure.announce("Preempt", 30, resources=["a", "b"])
    (event,) = Imds(azure.url).events()
    assert (event.id, event.type, event.status) == (event_id, "Preempt", "Scheduled")
    assert event.resources == ("a", "b")
    assert event.not_before is not None
    assert began + 29 <= event.not_before <= time.time() + 30


@pytest.mark.parametrize("not_before", ["", None, "soon", 7])
def test_an_event_without_a_time(azure: FakeAzure, not_before: object) -> None:
    azure.events[azure.announce()]["NotBefore"] = not_before
    (event,) = Imds(azure.url).events()
    assert event.not_before is None


@pytest.mark.parametrize("broken", [None, {}, "x", {"EventId": "1"}, {"Resources": "spot_0"}])
def test_an_event_that_cannot_be_read_hides_no_other(azure: FakeAzure, broken: object) -> None:
    event_id = azure.announce()
    good = azure.events[event_id]
    azure.events["broken"] = {**good, **broken} if broken == {"Resources": "spot_0"} else broken  # type: ignore[dict-item]
    assert [event.id for event in Imds(azure.url).events()] == [event_id]


@pytest.mark.parametrize("body", ["", "<html>", "[]", "{}", '{"Events": null}', '"x"', "null"])
def test_garbage_for_events(azure: FakeAzure, body: str) -> None:
    azure.answers[EVENTS].append({"body": body})
    with pytest.raises(ImdsError):
        Imds(azure.url).events()


def test_events_that_do_not_come_in_time(azure: FakeAzure) -> None:
    azure.answers[EVENTS].append({"delay_s": 2})
    with pytest.raises(ImdsError):
        Imds(azure.url).events(timeout_s=0.1)


def test_an_acknowledgement_starts_the_event(azure: FakeAzure) -> None:
    event_id = azure.announce()
    client = Imds(azure.url)
    client.acknowledge(event_id)
    assert list(azure.acknowledged) == [event_id]
    (event,) = client.events()
    assert (event.status, event.not_before) == ("Started", None)


def test_an_acknowledgement_of_nothing_is_an_error(azure: FakeAzure) -> None:
    with pytest.raises(ImdsError) as caught:
        Imds(azure.url).acknowledge("other")
    assert not caught.value.may_pass
