"""The rights that a cluster needs: what the Role gives, and what is asked for."""

from __future__ import annotations

import pytest
from cli_runs import failed
from kubernetes_stacks import FILE, group, stack

from sunspot.targets.kubernetes import raycluster, rights


def of_role(described):
    """What the Role gives, as (resource, verb, name) triples; None for all names."""
    role, _ = rights.make(described)
    return {
        (resource, verb, name)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [None])
    }


def asked_for(described, **where):
    return {(one.resource, one.verb, one.name) for one in rights.needed(described, **where)}


def resources(found):
    return {resource for resource, _, _ in found}


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({}, {"get", "list", "watch", "update", "patch", "delete"}),
        ({"claim": "theirs"}, {"get"}),
        (None, set()),
    ],
)
def test_the_role_allows_no_other_claim(asked, named):
    described = stack(gcs_fault_tolerance=asked) if asked is not None else stack()
    volume = raycluster.state_volume(described)
    role, _ = rights.make(described)
    rules = [one for one in role["rules"] if one["resources"] == ["persistentvolumeclaims"]]
    of_one = [one for one in rules if "resourceNames" in one]
    assert {verb for one in of_one for verb in one["verbs"]} == named
    assert all(one["resourceNames"] == [volume.claim] for one in of_one if volume)
    # `create` cannot be for one name.
    assert [one["verbs"] for one in rules if one not in of_one] == (
        [["create"]] if asked == {} else []
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"gcs_fault_tolerance": {}},
        {"gcs_fault_tolerance": {"keep": True}},
        {"gcs_fault_tolerance": {"claim": "theirs"}},
        {"token_secret": "ours"},
        {"head_disruption_budget": False},
    ],
)
@pytest.mark.parametrize("where", [{}, {"job": True}, {"inside": True}])
def test_the_role_gives_all_that_is_asked_for(settings, where):
    described = stack(group(), **settings)
    assert asked_for(described, **where) <= of_role(described)


def test_a_secret_of_the_users_is_only_read():
    described = stack(group(), token_secret="ours")
    of_secrets = {("secrets", "get", "ours")}
    assert {one for one in of_role(described) if one[0] == "secrets"} == of_secrets
    assert {one for one in asked_for(described) if one[0] == "secrets"} == of_secrets


def test_what_is_not_made_needs_no_right():
    usual, without = stack(group()), stack(group(), head_disruption_budget=False)
    budgets = "poddisruptionbudgets"
    assert budgets in resources(of_role(usual)) & resources(asked_for(usual))
    for found in (of_role(without), asked_for(without), asked_for(usual, job=True)):
        assert budgets not in resources(found)
    assert "pods/portforward" in resources(asked_for(usual))
    assert "pods/portforward" not in resources(asked_for(usual, inside=True))


def test_a_stack_without_a_project_file_is_named_by_the_file_that_was_given(kubernetes):
    kubernetes.api.forbidden = {("create", "rayclusters")}
    (kubernetes.project / "Pulumi.mine.yaml").unlink()
    (kubernetes.project / "mine.yaml").write_text(FILE)
    said = failed(2, "up", "--file", "mine.yaml", "--target", "kubernetes")
    give = "sunspot manifest mine --file FILE --target kubernetes --namespace default --rbac"
    assert give in said
