"""The table of ports: whole, free of clashes, and in words that Ray understands."""

import itertools

import pytest

from sunspot.ray import ports


def span(port):
    return range(port.number, (port.last or port.number) + 1)


def test_names_are_unique():
    names = [port.name for port in ports.PORTS]
    assert len(set(names)) == len(names)


def test_no_two_ports_overlap():
    # The kernel's range is no one's: three of Ray's defaults lie in it.
    pinned = [port for port in ports.PORTS if port.name != "ephemeral"]
    for one, other in itertools.combinations(pinned, 2):
        assert not set(span(one)) & set(span(other)), (one.name, other.name)


def test_every_flag_is_one_of_ray_start():
    from ray.scripts import scripts

    known = {option for parameter in scripts.start.params for option in parameter.opts}
    flags = {f"--{name}" for name in ports.start_parameters("head")}
    # All of them: one left out would be random, and no firewall rule could name it.
    assert flags == {option for option in known if option.endswith(("-port", "--port"))}


def test_every_variable_is_one_that_ray_reads(monkeypatch):
    import importlib

    from ray.autoscaler._private import constants
    from ray.dashboard import consts

    for key, module in (("AUTOSCALER_METRIC_PORT", constants), ("DASHBOARD_METRIC_PORT", consts)):
        assert ports.environment("head")[key] == str(getattr(module, key))
        with monkeypatch.context() as patch:
            patch.setenv(key, "12345")
            assert getattr(importlib.reload(module), key) == 12345
        importlib.reload(module)


def test_ports_of_a_worker_are_those_of_every_node():
    head, worker = ports.of("head"), ports.of("worker")
    assert set(head) == set(ports.PORTS)
    assert {port.name for port in head} - {port.name for port in worker} == {
        "gcs",
        "dashboard",
        "client",
        "serve",
        "autoscaler-metrics",
        "dashboard-metrics",
        "eviction-metrics",
        "prometheus",
        "grafana",
    }


def test_only_ssh_is_for_operators():
    assert [port.name for port in ports.PORTS if port.reach == "operator"] == ["ssh"]
    assert ports.get("ssh").number == 22
    assert ports.get("ssh").setting is None
    assert [port.name for port in ports.PORTS if port.reach == "caller"] == ["serve"]


def test_flags_pin_the_table():
    head, worker = ports.start_parameters("head"), ports.start_parameters("worker")
    assert head["port"] == "6379"
    assert (head["min-worker-port"], head["max-worker-port"]) == ("10002", "19999")
    assert set(head) - set(worker) == {"port", "dashboard-port", "ray-client-server-port"}
    assert worker.items() <= head.items()


def test_nodes_that_share_a_host_pin_only_what_they_name():
    flags = ports.start_parameters("head", {"dashboard-agent": 40001, "dashboard-metrics": 5})
    assert flags == {"dashboard-agent-listen-port": "40001"}
    assert ports.environment("head", {"dashboard-metrics": 5}) == {"DASHBOARD_METRIC_PORT": "5"}
    assert ports.environment("worker") == {}


@pytest.mark.parametrize(
    ("first", "expected"), [(0, ("0", "0")), (20_002, ("20002", "29999")), (10_002, None)]
)
def test_a_range_keeps_its_length_or_is_left_to_the_kernel(first, expected):
    flags = ports.start_parameters("worker", {"workers": first})
    table = ports.start_parameters("worker")
    names = ("min-worker-port", "max-worker-port")
    assert tuple(flags[n] for n in names) == (expected or tuple(table[n] for n in names))


@pytest.mark.parametrize("name", ["gcs", "nonsense"])
def test_a_number_for_a_port_that_is_not_there_is_refused(name):
    with pytest.raises(KeyError, match=name):
        ports.start_parameters("worker", {name: 1})


@pytest.mark.parametrize(("name", "text"), [("gcs", "6379"), ("workers", "10002-19999")])
def test_range_as_firewalls_write_it(name, text):
    assert ports.get(name).range == text
