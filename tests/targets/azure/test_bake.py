"""`sunspot bake`: what is asked of Azure, in which order, and what is left when it fails."""

import base64
import io
import shlex
import tarfile
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from azure_model.http_service import Reply
from azure_model.price_list import T4
from azure_stacks import run, write
from image_builder import ImageBuilder, running
from preview_stacks import ROOT, group, parse
from ssh_server import make_key

from sunspot.errors import SunspotError, UsageError
from sunspot.node.azure.arm import Arm
from sunspot.targets.azure import vm_images
from sunspot.targets.azure.bake import Builder, Recipe, recipe
from sunspot.targets.azure.bake.recipe import PROVIDERS
from sunspot.targets.azure.plan import plan

NOW = datetime(2026, 11, 22, 9, 5, tzinfo=UTC)
SUBSCRIPTION = "11111111-2222-3333-4444-555555555555"


class Tokens:
    def token(self, resource):
        assert resource
        return "t0"


def wanted(*groups, **keys):
    return recipe(plan(parse(*groups, **keys), ROOT), NOW)


def bake(
    service: ImageBuilder,
    made: Recipe | None = None,
    *,
    patience_s=60.0,
    tokens=None,
    told: list[str] | None = None,
):
    """Bakes with the stand-in; the id, and what the user is told."""
    told = [] if told is None else told
    with running(service) as url:
        builder = Builder(
            Arm(tokens or Tokens(), url, patience_s=0, sleep=lambda _: None),
            SUBSCRIPTION,
            told.append,
            sleep=lambda _: None,
            propagation_s=patience_s,
        )
        return builder.bake(wanted(group()) if made is None else made), told


def failure(service: ImageBuilder, made: Recipe | None = None, *, patience_s=60.0) -> str:
    """What the user is told where it fails."""
    with pytest.raises(SunspotError) as caught:
        bake(service, made, patience_s=patience_s)
    return str(caught.value)


def test_the_image_fits_the_stack_that_it_was_baked_for():
    made, _ = bake(ImageBuilder(), wanted(group(), group("gpu", T4)))
    image = vm_images.parse(made)
    assert image.baked == vm_images.Baked(
        stack="test", ray_version="2.60.0", driver="nvidia", made=NOW
    )
    assert f"/subscriptions/{SUBSCRIPTION}/resourceGroups/sunspot-images-uksouth/" in made
    # The stack takes what is printed.
    named = parse(group(), group("gpu", T4), image={"vm_image": made})
    assert plan(named, ROOT).head.vm_image == image


def test_a_stack_with_a_long_name_can_be_baked():
    long = wanted(group("gpu", T4))
    long = replace(long, baked=replace(long.baked, stack="a" * 50))
    made, _ = bake(ImageBuilder(), long)
    assert "a" * 50 in made


def test_only_the_gallery_and_its_surroundings_are_left():
    service = ImageBuilder()
    bake(service)
    assert service.paths("imageTemplates") == []
    (role,) = service.paths("roleAssignments")
    # Not of the subscription.
    scope = role.partition("/providers/Microsoft.Authorization")[0]
    assert scope.endswith("/resourceGroups/sunspot-images-uksouth")
    kinds = {path.split("/")[-2] for path in service.resources}
    kept = {"resourceGroups", "galleries", "images", "userAssignedIdentities", "roleAssignments"}
    assert kinds == kept


def test_stacks_of_two_regions_are_baked_in_one_subscription():
    service = ImageBuilder()
    made = [
        bake(service, replace(wanted(group()), location=region))[0]
        for region in ("uksouth", "westeurope")
    ]
    assert len({one.partition("/images/")[0] for one in made}) == 2


def test_the_template_runs_the_boots_own_scripts_with_the_stacks_images():
    service = ImageBuilder(run_fails="kept until here")
    templates = []
    answer = service.answer

    def watched(request):
        reply = answer(request)
        templates.extend(service.resources[p] for p in service.paths("imageTemplates"))
        return reply

    service.answer = watched
    failure(service, wanted(group(), group("gpu", T4)))
    properties = templates[0]["properties"]
    assert properties["source"]["sku"] == "server"
    assert properties["vmProfile"]["osDiskSizeGB"] == vm_images.DISK_GIB
    unpack, run = properties["customize"][0]["inline"]
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(unpack.split()[1]))) as tar:
        names = {member.name.rpartition("/")[2] for member in tar}
    assert {"bake.sh", "docker.sh", "driver-nvidia.sh", "image.sh", "52sunspot"} <= names
    settings = dict(word.split("=", 1) for word in shlex.split(run) if "=" in word)
    assert settings["SUNSPOT_DRIVER"] == "nvidia"
    images = ["rayproject/ray:2.60.0-py311", "rayproject/ray:2.60.0-py311-gpu"]
    assert settings["SUNSPOT_IMAGES"].split()[:2] == images
    (target,) = properties["distribute"]
    assert target["galleryImageId"].endswith(
        "/sunspot-test-ray-2.60.0-nvidia/versions/2026.1122.905"
    )


def test_the_definition_is_for_trusted_launch():
    service = ImageBuilder()
    bake(service)
    (path,) = (path for path in service.paths("/images/") if "roleAssignments" not in path)
    properties = service.resources[path]["properties"]
    assert properties["hyperVGeneration"] == "V2"
    features = {one["name"]: one["value"] for one in properties["features"]}
    assert features["SecurityType"] == "TrustedLaunchSupported"


def test_providers_are_registered_and_a_new_role_is_waited_for():
    service = ImageBuilder(unregistered={PROVIDERS[0], PROVIDERS[3]}, unknown_role_for=2)
    _, told = bake(service)
    assert sum("registering" in line for line in told) == 2
    puts = [one for one in service.requests if one.startswith("PUT") and "imageTemplates" in one]
    assert len(puts) == 3
    assert sum("trying again" in line for line in told) == 1


def test_a_user_who_may_not_assign_roles_is_told_at_once():
    error = {"code": "AuthorizationFailed", "message": "over roleAssignments/write"}
    service = ImageBuilder(failures={"/roleAssignments/": [Reply(403, {"error": error})]})
    assert "roleAssignments/write" in failure(service)
    assert service.paths("imageTemplates") == []


def test_a_new_identity_is_waited_for():
    error = {"code": "PrincipalNotFound", "message": "not yet"}
    service = ImageBuilder(failures={"/roleAssignments/": [Reply(400, {"error": error})]})
    bake(service)
    assert len(service.paths("roleAssignments")) == 1


def test_a_role_that_never_comes_is_an_error():
    service = ImageBuilder(unknown_role_for=10**6)
    assert "Not authorized" in failure(service, patience_s=0.0)
    assert service.paths("imageTemplates") == []


def test_a_build_that_fails_says_why_and_leaves_no_template():
    service = ImageBuilder(run_fails="bake: apt-get: 404")
    assert "bake: apt-get: 404" in failure(service)
    assert service.paths("imageTemplates") == []


def test_an_interrupted_build_is_cancelled_and_removed(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Builder, "_run", interrupt)
    service = ImageBuilder()
    with pytest.raises(KeyboardInterrupt):
        bake(service)
    assert any(one.startswith("POST") and one.endswith("/cancel") for one in service.requests)
    assert service.paths("imageTemplates") == []


def test_two_who_bake_at_once_do_not_remove_each_others_template(monkeypatch):
    service = ImageBuilder()

    def both(*_):
        monkeypatch.undo()
        (first,) = service.paths("imageTemplates")
        bake(service)
        assert service.paths("imageTemplates") == [first]

    monkeypatch.setattr(Builder, "_run", both)
    bake(service)


def test_a_network_that_is_lost_for_a_while_does_not_end_the_build():
    service = ImageBuilder(failures={"/operations/run": [Reply(503), Reply(500), Reply(502)]})
    _, told = bake(service)
    assert sum("asking again" in line for line in told) == 3


def test_a_network_that_is_lost_for_good_ends_it():
    service = ImageBuilder(failures={"/operations/run": [Reply(503)] * 1000})
    assert "503" in failure(service)
    assert service.paths("imageTemplates") == []


class Expiring(Tokens):
    """A login that ends once the build is asked for, as after a night."""

    def __init__(self, service):
        self.service = service

    def token(self, resource):
        if any("run" in one for one in self.service.requests):
            raise SunspotError("az says: AADSTS70043")
        return super().token(resource)


@pytest.mark.parametrize("answer", [Reply(500), Reply(403)])
def test_what_cannot_be_removed_is_named_with_the_commands(monkeypatch, answer):
    told: list[str] = []
    service = ImageBuilder()
    refused = {"error": {"code": "x", "message": "no"}}

    def refuse(_builder, template):
        service.failures[template] = [Reply(answer.status, refused)] * 10

    monkeypatch.setattr(Builder, "_run", refuse)
    bake(service, told=told)
    (left,) = service.paths("imageTemplates")
    assert f"az resource delete --ids {left}" in told[-1]


def test_a_login_that_ends_during_the_build_does_not_hide_what_is_left():
    told: list[str] = []
    service = ImageBuilder()
    with pytest.raises(SunspotError, match="AADSTS70043"):
        bake(service, tokens=Expiring(service), told=told)
    (left,) = service.paths("imageTemplates")
    assert left in told[-1]


def test_a_second_interrupt_says_what_is_left(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    told: list[str] = []
    monkeypatch.setattr(Builder, "_run", interrupt)
    monkeypatch.setattr(Builder, "_delete", interrupt)
    service = ImageBuilder()
    with pytest.raises(KeyboardInterrupt):
        bake(service, told=told)
    (left,) = service.paths("imageTemplates")
    assert left in told[-1]


@pytest.mark.parametrize("body", [{}, [], None])
def test_an_answer_in_no_shape_is_no_traceback(body):
    service = ImageBuilder(failures={"/sunspot-image-builder": [Reply(200, body)]})
    assert "documented" in failure(service)


def test_amd_gpus_cannot_be_baked(monkeypatch):
    monkeypatch.setattr("sunspot.targets.azure.plan.check_sizes", lambda _: None)  # InfiniBand
    with pytest.raises(UsageError, match="AMD"):
        wanted(group("amd", "Standard_ND96isr_MI300X_v5"))


def test_an_image_that_the_stack_builds_is_left_to_the_boot(tmp_path):
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "Dockerfile").write_text("FROM scratch\n")
    made = recipe(plan(parse(group(), image={"context": "image"}), tmp_path), NOW)
    assert made.images == ()


def test_the_image_is_made_in_the_subscription_that_the_stack_file_names(project, monkeypatch):
    write(project, "x", key=f"{make_key(project / 'key')}.pub")
    file = project / "Pulumi.x.yaml"
    named = f"config:\n  azure-native:subscriptionId: {SUBSCRIPTION}\n"
    file.write_text(file.read_text().replace("config:\n", named))
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", "22222222-2222-3333-4444-555555555555")
    monkeypatch.setattr(Builder, "bake", lambda self, _: self._id)
    result = run("bake", "x")
    assert result.stdout == f"vm_image: {SUBSCRIPTION}\n", result.stderr
