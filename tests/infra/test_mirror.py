"""Docker Hub is asked at most once a change: nodes pull copies, from the stack's registry."""

from azure_model import registry_tasks
from builds import build, group, make_stack, shipped_stack
from test_nodes import environment, machines
from test_rights import rights

from sunspot import monitoring

REGISTRY = "sunspot1a2b3c4d.azurecr.io"
IMAGES = ("SUNSPOT_IMAGE", "SUNSPOT_PROMETHEUS_IMAGE", "SUNSPOT_GRAFANA_IMAGE")
HUB = ("docker.io/", "rayproject/", "prom/", "grafana/")


def pulled(run):
    """Every image that some node of the stack pulls."""
    envs = [environment(machine) for machine in machines(run)]
    return {env[name] for env in envs for name in IMAGES if name in env}


def of_hub(run):
    return {image for image in pulled(run) if image.startswith(HUB)}


def copies(run):
    return registry_tasks.run(run.one("TaskRun").inputs)


def test_no_node_of_a_shipped_stack_asks_docker_hub(shipped):
    assert of_hub(shipped) == set()
    assert {image.partition("/")[0] for image in pulled(shipped)} == {REGISTRY}


def test_what_nodes_pull_was_copied(shipped, rich):
    for run in (shipped, rich):
        assert {f"{REGISTRY}/{name}" for name in copies(run).images} == pulled(run)


def test_the_run_asks_docker_hub_once_for_each_image(rich):
    asked = copies(rich).pulls
    assert len(asked) == len(set(asked)) == 4  # two of Ray's, one of them for GPUs
    assert all(reference.startswith("docker.io/") for reference in asked)
    assert monitoring.PROMETHEUS.partition("@")[2] in " ".join(asked)


def test_machines_wait_for_the_copies_and_may_pull_them(shipped):
    run = shipped.one("TaskRun")
    waiting = [*shipped.of("VirtualMachine"), *shipped.of("VirtualMachineScaleSet")]
    assert len(waiting) > 1
    for machine in waiting:
        assert run.urn in machine.depends_on
    for identity in ("head", "workers"):
        assert any(role == "pull" for role, _ in rights(shipped, identity))


def test_nodes_pull_as_their_identity(shipped):
    for machine in machines(shipped):
        assert environment(machine)["SUNSPOT_REGISTRY"] == REGISTRY


def run_name(**keys):
    return build(make_stack(group(), **keys)).one("TaskRun").inputs["taskRunName"]


def test_only_other_images_are_another_run():
    assert run_name() == run_name(owner="ada", access={"ssh_cidrs": ["192.0.2.1/32"]})
    assert run_name() != run_name(image={"reference": "rayproject/ray:2.60.0"})
    by_digest = [run_name(image={"reference": f"me/ray@sha256:{n * 64}"}) for n in "ab"]
    assert len(set(by_digest)) == 2


def test_another_digest_is_another_image_to_the_nodes():
    named = [
        pulled(build(make_stack(image={"reference": f"me/ray:1@sha256:{n * 64}"}))) for n in "ab"
    ]
    assert len(named[0] - named[1]) == 1


def test_without_the_mirror_nodes_pull_from_docker_hub():
    run = build(make_stack(group(), image={"mirror": False}))
    assert run.of("Registry") == run.of("TaskRun") == []
    assert len(of_hub(run)) == 3
    assert {environment(machine)["SUNSPOT_REGISTRY"] for machine in machines(run)} == {""}


def test_an_image_of_another_registry_stays_there():
    reference = "ghcr.io/me/ray:1"
    run = build(make_stack(group(), image={"reference": reference}))
    assert of_hub(run) == set()
    assert reference in pulled(run)
    assert not any("ray" in name for name in copies(run).images)


def test_beside_a_built_image_the_heads_others_are_copied(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM rayproject/ray\n")
    run = build(make_stack(group(), image={"context": "."}), tmp_path)
    assert run.of("Registry")
    assert {name.partition("/")[0] for name in copies(run).images} == {"prom", "grafana"}
    assert of_hub(run) == set()


def test_a_built_image_without_the_mirror(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM rayproject/ray\n")
    run = build(make_stack(group(), image={"context": ".", "mirror": False}), tmp_path)
    assert run.of("Registry")
    assert run.of("TaskRun") == []
    assert len(of_hub(run)) == 2


def test_a_preview_knows_all_of_it():
    run = build(shipped_stack("hybrid"), preview=True, silent=True)
    assert len(copies(run).images) == 4


def test_the_name_of_a_run_is_short_for_any_stack():
    run = build(make_stack(name="a" * 40))
    assert registry_tasks.RUN_NAME.fullmatch(run.one("TaskRun").inputs["taskRunName"])
