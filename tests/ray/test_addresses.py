"""What is said of a program that names an address that is not its cluster's."""

from dataclasses import replace

import pytest
from job_api import Told, handle_at

from sunspot.ray.addresses import AddressWatch

RAY_SAYS = "2026-01-01 00:00:00,000\tINFO worker.py:1801 -- Connecting to existing Ray cluster at "
GCS_FAILS = "[2026-01-01 00:00:00,000 E 7 7] gcs_rpc_client.h:179: Failed to connect to GCS at "


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def watch(tmp_path, told):
    def watch(head, driver=None, client=None):
        handle = handle_at(1, tmp_path)
        way = {"head_address": head, "driver_address": driver, "client_address": client}
        return AddressWatch(replace(handle, **way), told)

    return watch


HERE, AZURE = "[::ffff:127.0.0.1]:23456", "10.0.0.4:6379"
SERVICE = "mine-head-svc.ml.svc:6379"


@pytest.mark.parametrize(
    ("head", "line", "address"),
    [
        (HERE, f"{RAY_SAYS}address: 127.0.0.1:6379...", "127.0.0.1:6379"),
        (HERE, f"{RAY_SAYS}address: 10.9.9.9:23456...", "10.9.9.9:23456"),
        (HERE, f"{GCS_FAILS}address 127.0.0.1:6379 within 5 seconds.", "127.0.0.1:6379"),
        (AZURE, f"{RAY_SAYS}address: 10.0.0.5:6379...", "10.0.0.5:6379"),
        (AZURE, f"{GCS_FAILS}address old-head:6379 within 5 seconds.", "old-head:6379"),
        (SERVICE, f"{RAY_SAYS}address: 10.0.0.5:6380...", "10.0.0.5:6380"),
        (SERVICE, f"{GCS_FAILS}address 127.0.0.1:6379 within 5 seconds.", "127.0.0.1:6379"),
    ],
)
def test_what_the_job_prints_shows_another_clusters_address(watch, told, head, line, address):
    watch(head).printed(f"before\n{line}\nafter\n")
    (sentence,) = told
    assert address in sentence
    assert head in sentence
    assert "ray.init()" in sentence


@pytest.mark.parametrize(
    ("head", "address"),
    [
        (HERE, "127.0.0.1:23456"),
        (HERE, "[::ffff:127.0.0.1]:23456"),
        (AZURE, "10.0.0.4:6379"),
        (AZURE, "127.0.0.1:6379"),  # on the head
        (AZURE, "head:6379"),  # a name may be the head's
        (SERVICE, "10.244.0.29:6379"),  # and a number may be that of a head with a name
    ],
)
def test_the_clusters_own_address_in_any_form_is_passed_over(watch, told, head, address):
    watch(head).printed(f"{RAY_SAYS}address: {address}...\n")
    assert told == []


def test_a_head_that_is_away_is_not_called_another_cluster(watch, told):
    watch(HERE).printed(f"{GCS_FAILS}address 127.0.0.1:23456 within 5 seconds.\n")
    watch(SERVICE).printed(f"{GCS_FAILS}address 10.244.0.29:6379 within 5 seconds.\n")
    assert told == []


def test_it_is_said_once_though_ray_says_it_often_and_in_pieces(watch, told):
    watching = watch(HERE)
    for _ in range(3):
        for letter in f"{RAY_SAYS}address: 127.0.0.1:6379...\n":
            watching.printed(letter)
        watching.printed(f"{GCS_FAILS}address localhost:6379 within 5 seconds.\n")
    assert len(told) == 1


def test_the_flag_that_gives_this_cluster_the_port_is_said_where_it_can_help(watch, told):
    watch(HERE).printed(f"{RAY_SAYS}address: 127.0.0.1:6379...\n")
    watch(AZURE).printed(f"{RAY_SAYS}address: 127.0.0.1:1234...\n")
    here, azure = told
    assert "sunspot down dev" in here
    assert "--port 6379" in here
    assert "--port" not in azure


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("import ray\nray.init('localhost:6379')", 1),
        ("import ray\nray.init(address='localhost:6379')", 1),
        ("from ray import init\ninit('10.1.1.1:6379', num_cpus=1)", 1),
        ("import ray\nray.init('ray://localhost:10001')", 1),
        ("import ray\nray.util.connect('localhost:10001')", 1),
        ("import ray\nray.init('[::1]:6379')", 1),
        ("import ray as r\nr.init('localhost:6379')", 1),
        ("import ray.data\nray.init('localhost:6379')", 1),
        ("from ray import init as start\nstart('localhost:6379')", 1),
        ("from ray.util import connect\nconnect(conn_str='localhost:10001')", 1),
        ("import psycopg\npsycopg.connect('db.example.com:5432')", 0),
        ("import socket\nsocket.socket().connect('localhost:1883')", 0),
        ("from tracker import init\ninit('localhost:5000')", 0),
        ("import ray\nray.init()\nray.init('auto')\nray.init(address=None)", 0),
        ("import ray\nray.init('localhost:23456')", 0),
        ("print('localhost:6379')", 0),
        ("this is not Python", 0),
    ],
)
def test_an_address_in_the_programs_code_is_seen_before_it_runs(watch, told, tmp_path, code, count):
    (tmp_path / "mine.py").write_text(code)
    watch(HERE).program(["python", "mine.py", "gone.py", "1"], tmp_path)
    assert len(told) == count


def test_ray_client_is_told_from_the_gcs_where_its_address_has_no_scheme(watch, told, tmp_path):
    (tmp_path / "mine.py").write_text("import ray\nray.util.connect('localhost:10001')")
    watch(HERE).program(["python", "mine.py"], tmp_path)
    assert "ray://localhost:10001" in told[0]
    assert "no Ray Client server" in told[0]
    assert "--client" in told[0]


def test_ray_client_of_a_cluster_here_is_its_own_only_at_its_port(watch, told, tmp_path):
    (tmp_path / "mine.py").write_text("import ray\nray.init('ray://localhost:10001')")
    for port in (10001, 23000):
        client = f"ray://127.0.0.1:{port}"
        watch(HERE, HERE, client).program(["python", "mine.py"], tmp_path)
    (sentence,) = told
    assert "ray://127.0.0.1:23000" in sentence


def test_what_was_seen_in_the_code_is_not_said_again(watch, told, tmp_path):
    (tmp_path / "mine.py").write_text("import ray\nray.init('localhost:6379')")
    watching = watch(HERE)
    watching.program(["python", "mine.py"], tmp_path)
    watching.printed(f"{RAY_SAYS}address: 127.0.0.1:6379...\n")
    assert len(told) == 1


def test_ray_client_is_fine_where_it_is_the_way_in(watch, told, tmp_path):
    (tmp_path / "mine.py").write_text("import ray\nray.init('ray://localhost:10001')")
    watch(AZURE, driver="ray://127.0.0.1:10001").program(["python", "mine.py"], tmp_path)
    assert told == []
