"""Grafana's dashboards, against the schema that Grafana publishes, and what they refer to."""

import copy
import functools
import json
import typing
from configparser import ConfigParser

import pytest
import yaml
from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from pydantic import ConfigDict, TypeAdapter, ValidationError
from ray.dashboard.modules.metrics import grafana_dashboard_factory, metrics_head

from sunspot import monitoring

GRAFANA = monitoring.FOLDER / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in GRAFANA.glob("dashboards/*.json")}
PROVISIONED = {
    path.parent.name: yaml.safe_load(path.read_text())
    for path in GRAFANA.glob("provisioning/*/*.yml")
}
[SOURCE] = PROVISIONED["datasources"]["datasources"]


def problems(dashboard):
    """What the schema does not have: keys, values of that type, and kinds of panel."""
    plugins.register_default_plugins()
    read = Dashboard.from_json(dashboard)
    # It does not write again what it has no place for.
    written = json.loads(JSONEncoder().encode(read))
    kinds = {panel["type"] for panel in dashboard["panels"]}
    return {
        *(set(keys(dashboard)) - set(keys(written))),
        *(name for part in parts(read) for name in wrong(part)),
        *(kinds - runtime.Runtime().panelcfg_variants.keys()),
    }


def keys(value, path=""):
    """The path of each key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}"
            yield from keys(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from keys(inner, f"{path}[{number}]")


def parts(value):
    """The objects of the schema that a value is made of."""
    if isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from parts(inner)
    elif hasattr(value, "to_json"):
        yield value
        yield from parts(vars(value))


def wrong(part):
    """The names of an object's values that are not of the schema's type."""
    for name, adapter in adapters(type(part)).items():
        value = getattr(part, name)
        try:
            same = adapter.validate_python(value) == value
        except ValidationError:
            same = False
        if not same:
            yield f"{type(part).__name__}.{name}"


@functools.cache
def adapters(kind):
    config = ConfigDict(arbitrary_types_allowed=True)
    hints = typing.get_type_hints(kind)
    return {name: TypeAdapter(hint, config=config) for name, hint in hints.items()}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafanas_schema_has_all_of_a_dashboard(name):
    assert problems(DASHBOARDS[name]) == set()


CUSTOM = ".panels[6].fieldConfig.defaults.custom"


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["refesh"], "10s", ".refesh"),
        (["panels", 0, "titel"], "Nodes", ".panels[0].titel"),
        (["panels", 0, "type"], "statistic", "statistic"),
        (["panels", 0, "options", "colour"], "red", ".panels[0].options.colour"),
        (["panels", 0, "gridPos", "w"], "4", "GridPos.w"),
        (["panels", 0, "targets", 0, "query"], "up", ".panels[0].targets[0].query"),
        (["panels", 0, "targets", 0, "expr"], 1, "Dataquery.expr"),
        (["panels", 0, "targets", 0, "format"], "list", "Dataquery.format_val"),
        (["panels", 6, "fieldConfig", "defaults", "custom", "stack"], {}, f"{CUSTOM}.stack"),
    ],
)
def test_what_the_schema_does_not_have_is_found(path, value, problem):
    broken = copy.deepcopy(DASHBOARDS["sunspot"])
    part = broken
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    assert problems(broken) == {problem}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_asks_the_data_source_that_is_provisioned(name):
    panels = DASHBOARDS[name]["panels"]
    asked = [*panels, *(target for panel in panels for target in panel["targets"])]
    expected = {"type": SOURCE["type"], "uid": SOURCE["uid"]}
    assert [one["datasource"] for one in asked] == [expected] * len(asked)


def test_rays_dashboards_ask_a_data_source_of_that_type_and_name():
    text, _ = grafana_dashboard_factory.generate_default_grafana_dashboard()
    variables = {one["name"]: one for one in json.loads(text)["templating"]["list"]}
    assert variables["datasource"]["query"] == SOURCE["type"]
    # The value of that variable in the pages of Ray's own dashboard.
    assert SOURCE["name"] == metrics_head.DEFAULT_PROMETHEUS_NAME


def test_our_dashboards_lie_where_grafana_looks():
    providers = {one["name"]: one for one in PROVISIONED["dashboards"]["providers"]}
    folder = providers["Sunspot"]["options"]["path"]
    # On Azure's head and in the container of one host, the files lie in /etc.
    files = {f"/etc/{name}" for name in monitoring.files() if name.endswith(".json")}
    assert files == {f"{folder}/{name}.json" for name in DASHBOARDS}
    settings = ConfigParser(interpolation=None)
    settings.read(GRAFANA / "grafana.ini")
    assert settings["dashboards"]["default_home_dashboard_path"] in files


def test_no_dashboard_has_the_title_of_a_folder():
    """Grafana does not save it (https://github.com/grafana/grafana/issues/15642)."""
    folders = {one.get("folder") for one in PROVISIONED["dashboards"]["providers"]}
    assert not folders & {dashboard["title"] for dashboard in DASHBOARDS.values()}
