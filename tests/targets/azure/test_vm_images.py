"""VM images that a stack names: what is refused, and what the name of a baked one says."""

from datetime import UTC, datetime, timedelta

import pytest
from azure_model.price_list import T4
from preview_stacks import ROOT, group, make, parse

from sunspot.errors import UsageError
from sunspot.stack import Stack
from sunspot.targets.azure import vm_images
from sunspot.targets.azure.plan import plan
from sunspot.targets.azure.vm_images import Baked, VmImage

AMD = "Standard_ND96isr_MI300X_v5"
GALLERY = (
    "/subscriptions/s/resourceGroups/images/providers/Microsoft.Compute/galleries/sunspot/images"
)
MANAGED = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/mine"
ROCM = "microsoft-dsvm:ubuntu-hpc:2404-rocm:latest"
RAY = "2.60.0"
NOW = datetime(2026, 11, 22, 9, 5, tzinfo=UTC)


def baked_id(ray: str = RAY, driver: str = "none", made: datetime | None = None) -> str:
    made = datetime.now(UTC) if made is None else made
    return f"{GALLERY}/sunspot-test-ray-{ray}-{driver}/versions/{vm_images.version_at(made)}"


def with_image(text: str, *groups, **keys) -> Stack:
    return parse(*groups, image={"vm_image": text}, **keys)


def refusal(stack: Stack) -> str:
    with pytest.raises(UsageError) as caught:
        plan(stack, ROOT)
    return str(caught.value)


@pytest.mark.parametrize("text", [f"{GALLERY}/mine", f"{GALLERY}/mine/versions/1.0.0", ROCM])
def test_every_machine_is_made_from_the_image_that_the_stack_names(text: str):
    found = plan(with_image(text, group(), group("gpu", T4)), ROOT)
    machines = [found.head, *(pool.machine for pool in found.pools)]
    assert [machine.vm_image and machine.vm_image.text for machine in machines] == [text] * 3


def test_without_one_nothing_changes():
    assert plan(parse(group()), ROOT).head.vm_image is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ubuntu", "'ubuntu' is not a VM image"),
        (MANAGED, "trusted launch"),
        ("rayproject/ray:2.60.0", "is not a VM image"),
        ("Canonical:ubuntu-24_04-lts:server", "PUBLISHER:OFFER:SKU:VERSION"),
        (f"{GALLERY}/a b", "is not a VM image"),
        (f"{GALLERY}/mine/versions/newest", "is not a VM image"),
        (f"{GALLERY}/mine/versions/VERSION", "is not a VM image"),
        (GALLERY.replace("/s/", "/ID/") + "/mine", "still says ID"),
        (f"{GALLERY}/IMAGE/versions/1.0.0", "still says IMAGE"),
        ("", "is not a VM image"),
    ],
)
def test_what_is_not_an_image_is_refused(text: str, expected: str):
    message = refusal(with_image(text))
    assert "sunspot:image > vm_image" in message
    assert expected in message


def test_an_image_baked_for_another_ray_is_refused():
    message = refusal(with_image(baked_id(ray="2.59.1")))
    assert "sunspot:image > vm_image" in message
    assert "2.59.1" in message
    assert RAY in message
    assert "sunspot bake test" in message


def test_a_baked_image_has_no_amd_driver(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sunspot.targets.azure.plan.check_sizes", lambda _: None)  # InfiniBand
    amd = group("amd", AMD)
    assert "AMD" in refusal(with_image(baked_id(), amd))
    assert plan(with_image(ROCM, amd), ROOT).pools


def test_the_name_of_a_baked_image_says_what_it_was_made_for():
    baked = vm_images.parse(baked_id(driver="nvidia", made=NOW)).baked
    assert baked == Baked(stack="test", ray_version=RAY, driver="nvidia", made=NOW)
    assert baked is not None
    assert baked.definition == "sunspot-test-ray-2.60.0-nvidia"
    # A stack's name may hold hyphens, and what looks like the rest of the name.
    name = Baked(stack="a-ray-2", ray_version=RAY, driver="none", made=None).definition
    read = vm_images.parse(f"{GALLERY}/{name}").baked
    assert read is not None
    assert (read.stack, read.ray_version, read.made) == ("a-ray-2", RAY, None)


@pytest.mark.parametrize("version", ["1.0.0", "latest", "2026.1332.0", "2026.1122"])
def test_a_version_that_is_not_a_time_has_no_age(version: str):
    baked = vm_images.parse(f"{GALLERY}/sunspot-test-ray-2.60.0-none/versions/{version}").baked
    assert baked is not None
    assert baked.made is None
    assert baked.stale(NOW) is None


def test_later_images_have_higher_versions():
    moments = [NOW, NOW + timedelta(minutes=60), NOW + timedelta(days=1), NOW + timedelta(days=40)]
    numbers = [tuple(int(p) for p in vm_images.version_at(m).split(".")) for m in moments]
    assert numbers == sorted(set(numbers))


def test_the_preview_names_the_image_and_warns_of_an_old_one():
    old = baked_id(made=datetime.now(UTC) - timedelta(days=vm_images.MAX_AGE_DAYS + 1))
    found = make(group(), image={"vm_image": old})
    assert any(old in note for note in found.notes)
    (warning,) = [w for w in found.warnings if "baked" in w]
    assert "61 days" in warning
    assert "sunspot bake test" in warning
    fresh = make(group(), image={"vm_image": baked_id()})
    assert [w for w in fresh.warnings if "baked" in w] == []


def test_the_preview_warns_of_gpus_whose_driver_is_not_on_the_image():
    def warnings(driver: str) -> list[str]:
        found = make(group("gpu", T4), image={"vm_image": baked_id(driver=driver)})
        return [w for w in found.warnings if "driver" in w]

    assert len(warnings("none")) == 1
    assert warnings("nvidia") == []


def test_a_larger_image_needs_a_larger_temporary_disk():
    workers = group("a", "Standard_F8s_v2")  # 64 GiB, one too few for 64 and trusted launch's
    (plain,) = plan(parse(workers), ROOT).pools
    (of_image,) = plan(with_image(baked_id(), workers), ROOT).pools
    assert (plain.machine.ephemeral_disk, of_image.machine.ephemeral_disk) == (True, False)
    assert of_image.machine.disk_gib >= vm_images.DISK_GIB
    assert any("billed" in w for w in make(workers, image={"vm_image": ROCM}).warnings)


def test_an_image_of_the_marketplace_has_four_parts():
    assert vm_images.parse(ROCM).marketplace == tuple(ROCM.split(":"))
    assert VmImage(text="x", definition_id="x").marketplace is None
