"""What is deployed with Serve: its config, and what of it is refused."""

import json

import pytest
from job_api import handle_at, refusal, serving

from sunspot.ray import ports, serve_config
from sunspot.ray.jobs import JobClient

APP = {"name": "food", "import_path": "main:app"}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config_file(place, name="serve.yaml", **fields):
    file = place / name
    file.write_text(json.dumps({"applications": [APP], **fields}))
    return str(file)


def test_an_application_is_served_by_the_head_on_its_loopback_address():
    config = serve_config.load("pkg.main:app", None)
    assert config == {
        "applications": [{"name": "default", "import_path": "pkg.main:app"}],
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": ports.get("serve").number},
    } | {"grpc_options": {}}


def test_a_config_keeps_what_it_says(place):
    file = config_file(
        place,
        proxy_location="EveryNode",
        http_options={"port": 8100, "request_timeout_s": 5},
        logging_config={"log_level": "DEBUG"},
    )
    config = serve_config.load(file, None)
    assert config["proxy_location"] == "EveryNode"
    assert config["http_options"] == {"host": "127.0.0.1", "port": 8100, "request_timeout_s": 5}
    assert config["logging_config"] == {"log_level": "DEBUG"}
    assert serve_config.load(file, 8200)["http_options"]["port"] == 8200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "0", "0x0", "", None])  # noqa: S104
def test_an_ingress_on_every_address_is_refused(place, host):
    said = refusal(serve_config.load, config_file(place, http_options={"host": host}), None)
    assert "http_options.host" in said
    assert repr(host) in said


@pytest.mark.parametrize("host", [None, "0.0.0.0"])  # noqa: S104
def test_an_ingress_behind_a_firewall_listens_on_every_address(place, host):
    file = config_file(place, http_options={} if host is None else {"host": host})
    http = serve_config.load(file, None, is_open=True)["http_options"]
    assert http == {"host": "0.0.0.0", "port": ports.get("serve").number}  # noqa: S104


def test_on_a_port_that_the_firewall_does_not_open_the_ingress_stays_on_the_loopback(place):
    assert serve_config.load("main:app", 8100, is_open=True)["http_options"]["host"] == "127.0.0.1"
    file = config_file(place, http_options={"host": "0.0.0.0"})  # noqa: S104
    assert "http_options.host" in refusal(serve_config.load, file, 8100, is_open=True)
    here = config_file(place, "here.yaml", http_options={"host": "127.0.0.1"})
    assert serve_config.load(here, None, is_open=True)["http_options"]["host"] == "127.0.0.1"


def test_a_grpc_ingress_is_refused(place):
    options = {"port": 9000, "grpc_servicer_functions": ["a.b"]}
    said = refusal(serve_config.load, config_file(place, grpc_options=options), None)
    assert "grpc_servicer_functions" in said
    # `serve build` writes the options without a function, which starts nothing.
    serve_config.load(config_file(place, grpc_options={"grpc_servicer_functions": []}), None)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"http_options": [1]}, "http_options"),
        ({"http_options": {"host": 5}}, "host 5"),
        ({"http_options": {"port": "8000"}}, "port '8000'"),
        ({"http_options": {"port": 0}}, "port 0"),
        ({"http_options": {"port": True}}, "port True"),
        ({"applications": {}}, "applications"),
        ({"applications": ["main:app"]}, "applications"),
    ],
)
def test_what_is_no_config_is_refused(place, fields, part):
    assert part in refusal(serve_config.load, config_file(place, **fields), None)


def test_text_that_is_no_yaml_is_refused(place):
    (place / "serve.yaml").write_text("{")
    assert "serve.yaml" in refusal(serve_config.load, "serve.yaml", None)


@pytest.mark.parametrize("source", ["missing.yaml", "main", "main:", ":app", "a:b:c", "a b:c", ""])
def test_what_is_neither_a_file_nor_an_application_is_refused(source):
    assert repr(source) in refusal(serve_config.load, source, None)


@pytest.mark.parametrize("port", [0, 65_536, -1])
def test_a_port_that_is_none_is_refused(port):
    assert str(port) in refusal(serve_config.load, "main:app", port)


class TestWorkingDirectories:
    @pytest.fixture
    def api(self):
        with serving() as (api, port):
            yield api, port

    def send(self, api, place, config, folder="."):
        state = place / "state"
        state.mkdir()
        client = JobClient(handle_at(api[1], state))
        serve_config.send_working_dirs(client, config, folder, lambda _text: None)

    def test_applications_get_the_folder_unless_they_name_one(self, api, place):
        (place / "here").mkdir()
        (place / "here" / "main.py").write_text("app = 1\n")
        (place / "other").mkdir()
        (place / "other" / "main.py").write_text("app = 2\n")
        config = {
            "applications": [
                APP | {"name": "a"},
                APP | {"name": "b", "runtime_env": {"env_vars": {"X": "1"}}},
                APP | {"name": "c", "runtime_env": {"working_dir": "other"}},
                APP | {"name": "d", "runtime_env": {"working_dir": "https://x/y.zip"}},
            ]
        }
        self.send(api, place, config, "here")
        a, b, c, d = (app["runtime_env"]["working_dir"] for app in config["applications"])
        assert a == b != c
        assert d == "https://x/y.zip"
        assert set(api[0].packages) == {uri.removeprefix("gcs://") for uri in (a, c)}
        assert config["applications"][1]["runtime_env"]["env_vars"] == {"X": "1"}

    def test_an_empty_folder_is_left_out(self, api, place):
        (place / "empty").mkdir()
        config = {"applications": [dict(APP), APP | {"name": "other"}]}
        self.send(api, place, config, "empty")
        assert [app["runtime_env"] for app in config["applications"]] == [{}, {}]

    @pytest.mark.parametrize("env", ["pip", ["pip"]])
    def test_an_environment_that_is_no_mapping_is_refused(self, api, place, env):
        config = {"applications": [APP | {"runtime_env": env}]}
        assert "runtime_env" in refusal(self.send, api, place, config)
