"""Secrets and unknowns on the wire."""

from azure_model.pulumi_wire import SECRET, SIGNATURE, UNKNOWN, has_secret, is_known, opened

TOKEN = {SIGNATURE: SECRET, "value": {"a": ["t0ken"]}}


def test_a_secret_is_found_and_opened_wherever_it_stands():
    inputs = {"properties": [{"token": TOKEN}, 1]}
    assert has_secret(inputs)
    assert opened(inputs) == {"properties": [{"token": {"a": ["t0ken"]}}, 1]}
    assert not has_secret(opened(inputs))


def test_one_unknown_part_makes_the_whole_unknown():
    assert is_known({"a": [TOKEN, None]})
    assert not is_known({"a": [TOKEN, {"b": UNKNOWN}]})
