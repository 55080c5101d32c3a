"""What importing Sunspot loads: nothing heavy, and for the bare name nothing at all."""

import json
import subprocess
import sys

import pytest

import sunspot

HEAVY = [
    "pulumi",
    "pulumi_azure_native",
    "pulumi_kubernetes",
    "azure",
    "kubernetes",
    "torch",
    "ray",
]


def modules_after(code):
    """The modules of a fresh interpreter that has run this code."""
    script = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "code",
    [
        "import sunspot",
        "import sunspot.spec, sunspot.stack, sunspot.catalog, sunspot.ray.ports",
        "import sunspot.targets.azure.settings, sunspot.targets.azure.plan",
        "import sunspot.targets.kubernetes.target",
        "import sunspot.catalog.cost, infra",
        "import sunspot.targets.azure.target, sunspot.targets.azure.doctor.examine",
        "import sunspot.targets.azure.first_contact",
        # Reading a whole stack and making a config ask for Ray's version, not for Ray.
        "import sunspot as s; s.Stack; s.SimpleRayCluster(1, s.RayNodeConfig(vm_size='D2s_v5'))",
    ],
)
def test_nothing_heavy_is_loaded(code):
    assert not modules_after(code) & set(HEAVY)


def test_bare_import_loads_no_module_of_ours_and_no_pydantic():
    loaded = modules_after("import sunspot")
    assert {name for name in loaded if name.startswith("sunspot")} == {"sunspot"}
    assert "pydantic" not in loaded


def test_ports_need_the_standard_library_alone():
    loaded = modules_after("import sunspot.ray.ports")
    assert not loaded & {"pydantic", "yaml", *HEAVY}


@pytest.mark.parametrize("name", sunspot.__all__)
def test_every_public_name_is_there(name):
    assert getattr(sunspot, name) is not None
    assert name in dir(sunspot)


def test_other_names_are_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        sunspot.nonsense  # noqa: B018
