"""The settings and provisioning files that Grafana gets, against Grafana's own source.

It says what there is: `conf/defaults.ini` has every setting, and its tests have a provisioning file
of each kind with every key. They are Grafana 10's, the newest source to be had from the Go proxy.
"""

import re
from collections.abc import Iterator
from configparser import ConfigParser
from typing import Any

import pytest
import yaml
from compose_engine import GRAFANA_SOURCE, need_built
from compose_stacks import group, host, stack
from machines import PROJECT

from sunspot import monitoring
from sunspot.targets.compose import manifest, plan, published

GRAFANA = monitoring.FOLDER / "grafana"
# Came with Grafana 11.
NEWER = {("plugins", "preinstall_disabled")}


@pytest.fixture(scope="module", autouse=True)
def _source() -> None:
    need_built(GRAFANA_SOURCE)


def settings(text: str) -> set[tuple[str, str]]:
    """The settings of an INI file, each with its section; those above all sections in "top"."""
    parser = ConfigParser(interpolation=None)
    parser.read_string(f"[top]\n{text}")
    return {(section, name) for section in parser.sections() for name in parser[section]}


def defaults() -> set[tuple[str, str]]:
    return settings((GRAFANA_SOURCE / "defaults.ini").read_text())


def variables() -> set[str]:
    """The variables that Grafana reads, one for each setting, and those of its image."""
    found = {re.sub(r"\W", "_", f"gf_{section}_{name}").upper() for section, name in defaults()}
    return found | set(re.findall(r"GF_PATHS_\w+", (GRAFANA_SOURCE / "run.sh").read_text()))


def keys(value: Any, path: str = "") -> Iterator[str]:
    """The path of each key of a YAML file, without the places in its lists."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}"
            yield from keys(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, path)


def unknown(kind: str, text: str) -> set[str]:
    """The keys of a provisioning file that Grafana's own of that kind does not have."""
    example = yaml.safe_load((GRAFANA_SOURCE / f"{kind}.yml").read_text())
    return set(keys(yaml.safe_load(text))) - set(keys(example))


def test_grafana_has_every_setting() -> None:
    ours = settings((GRAFANA / "grafana.ini").read_text())
    assert ours > NEWER
    assert ours - defaults() == NEWER


def test_a_misspelt_setting_is_found() -> None:
    text = (GRAFANA / "grafana.ini").read_text().replace("allow_embedding", "allow_embeding")
    assert settings(text) - defaults() - NEWER == {("security", "allow_embeding")}


def test_grafana_reads_every_variable_in_a_container_of_one_host(tmp_path: Any) -> None:
    made = plan.make(stack(group()), host(), tmp_path)
    ports = published.choose(made, dashboard=None, taken=set(), claims=None)
    services = yaml.safe_load(manifest.text(made, ports, "owner"))["services"]
    ours = {name for name in services["grafana"]["environment"] if name.startswith("GF_")}
    assert len(ours) == 4
    assert ours <= variables()


def test_grafana_reads_every_variable_on_azures_head() -> None:
    script = PROJECT / "cloud_init/files/usr/local/lib/sunspot/grafana.sh"
    ours = set(re.findall(r"--env=(\w+)", script.read_text()))
    assert len(ours) == 3
    assert ours <= variables()


FILES = {"datasources": "prometheus", "dashboards": "sunspot"}


@pytest.mark.parametrize("kind", FILES)
def test_grafana_has_every_key_of_the_provisioning_files(kind: str) -> None:
    assert unknown(kind, (GRAFANA / f"provisioning/{kind}/{FILES[kind]}.yml").read_text()) == set()


@pytest.mark.parametrize(
    ("kind", "key", "wrong"),
    [
        ("datasources", "isDefault", ".datasources.default"),
        ("dashboards", "path", ".providers.options.folder"),
    ],
)
def test_a_key_that_grafana_does_not_have_is_found(kind: str, key: str, wrong: str) -> None:
    text = (GRAFANA / f"provisioning/{kind}/{FILES[kind]}.yml").read_text()
    assert unknown(kind, text.replace(f"{key}:", f"{wrong.rpartition('.')[2]}:")) == {wrong}
