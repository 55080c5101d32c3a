"""The client of ARM, against a stand-in for it."""

import time

import pytest
from azure_model.arm import VIRTUAL_MACHINES, serving
from azure_model.http_service import Reply

from sunspot.node.azure.arm import Arm, ArmError
from sunspot.node.azure.imds import Imds


@pytest.fixture
def arm():
    with serving() as made:
        yield made


def client(arm, patience_s=20.0):
    return Arm(Imds(arm.url), arm.url, patience_s=patience_s)


def test_a_busy_arm_is_left_alone_for_as_long_as_it_says(arm):
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        time.sleep(seconds)

    asked = Arm(Imds(arm.url), arm.url, sleep=sleep)
    arm.failures = [Reply(429, None, {"Retry-After": "1"})]
    assert asked.get(VIRTUAL_MACHINES, "x").body["value"]
    assert 0.5 < sum(waits) <= 1.5
    assert len(arm.requests) == 2


def test_a_wait_that_is_too_long_is_an_error_and_stops_requests(arm):
    asked = client(arm, patience_s=1.0)
    arm.failures = [Reply(429, None, {"Retry-After": "600"})]
    for _ in range(3):
        with pytest.raises(ArmError) as caught:
            asked.get(VIRTUAL_MACHINES, "x")
        assert caught.value.status == 429
    assert len(arm.requests) == 1


def test_a_users_proxy_is_asked_and_a_netrc_file_is_not(arm, monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("http_proxy", arm.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    behind = Arm(Imds(arm.url), "http://arm.invalid", patience_s=0)
    assert behind.get(VIRTUAL_MACHINES, "x").body["value"]


def test_a_failing_arm_is_asked_again(arm):
    arm.failures = [Reply(503), Reply(500)]
    assert client(arm).get(VIRTUAL_MACHINES, "x").body["value"]


def test_an_error_names_what_arm_named(arm):
    details = {
        "code": "Conflict",
        "message": "outer",
        "details": [{"code": "SkuNotAvailable", "message": "inner"}],
    }
    arm.failures = [Reply(409, {"error": details})]
    with pytest.raises(ArmError) as caught:
        client(arm).get("/x", "x")
    assert caught.value.codes == ("Conflict", "SkuNotAvailable")


def test_no_token_goes_to_another_host(arm):
    page = {"value": [], "nextLink": "http://localhost:1/stolen"}
    arm.failures = [Reply(200, page)]
    with pytest.raises(ArmError, match="is not at"):
        list(client(arm).pages("/x", "x"))


def test_an_arm_that_is_away_is_an_error_of_arm():
    class Tokens:
        def token(self, resource):
            return resource

    with pytest.raises(ArmError, match="GET /x"):
        Arm(Tokens(), "http://127.0.0.1:9", patience_s=0.0).get("/x", "x")
