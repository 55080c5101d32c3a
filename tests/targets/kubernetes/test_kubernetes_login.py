"""The login of a kubeconfig: its certificates stay in memory, its command may fail."""

from __future__ import annotations

import base64
import gc
import sys
import tempfile
from pathlib import Path

import kubernetes_server
import pytest
import yaml
from cli_runs import failed

from sunspot.targets.kubernetes.access import Place
from sunspot.targets.kubernetes.errors import RefusedError, UnreachableError
from sunspot.targets.kubernetes.raycluster import Names
from sunspot.targets.kubernetes.records import Record

PEM = {"certificate-authority": "ca", "client-certificate": "certificate", "client-key": "key"}


@pytest.fixture
def place(kubernetes, tmp_path, monkeypatch):
    """A Kubernetes whose certificates are in the kubeconfig, and an empty folder for files."""
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    cluster["server"] = "https://127.0.0.1:1"
    for key, text in PEM.items():
        part = cluster if key == "certificate-authority" else user
        part[f"{key}-data"] = base64.b64encode(text.encode()).decode()
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return Place.find("here", "default")


def read(configuration):
    names = ("ssl_ca_cert", "cert_file", "key_file")
    return [Path(getattr(configuration, name)).read_text() for name in names]


def test_certificates_and_key_are_in_no_file(place, tmp_path):
    made = place.configuration()
    assert list((tmp_path / "temporary").iterdir()) == []
    assert read(made) == read(made) == list(PEM.values())
    assert read(place.configuration()) == list(PEM.values())


def test_a_token_is_read_before_each_request_and_the_files_stay(kubernetes, place):
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "secret"
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    made = place.configuration()
    for _ in range(3):
        assert made.auth_settings()["BearerToken"]["value"] == "Bearer secret"
        assert read(made) == list(PEM.values())


def test_they_go_with_the_configuration(place):
    place.configuration()
    gc.collect()
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(3):
        place.configuration()
    gc.collect()
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["no-such-login"], "no-such-login"),
        ([sys.executable, "-c", "import sys; sys.exit('not logged in')"], "not logged in"),
        ([sys.executable, "-c", "print('{}')"], "missing key"),
    ],
    ids=["missing", "fails", "nonsense"],
)
def test_a_login_command_that_fails(kubernetes, capfd, command, said):
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    program, *arguments = command
    config["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": program,
            "args": arguments,
        }
    }
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    told = failed(2, "up", "mine")
    assert "the login command of Kubernetes (context here) failed: " in told
    assert said in told
    assert "ERROR:root" not in capfd.readouterr().err
    assert kubernetes.api.names("rayclusters") == []


@pytest.mark.parametrize("settings", [None, "here"])
def test_a_context_without_settings(kubernetes, settings):
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["contexts"][0]["context"] = settings
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    told = failed(2, "up", "mine", "--context", config["contexts"][0]["name"])
    assert "the login for Kubernetes (context here) cannot be read from" in told
    assert str(kubernetes.kubeconfig) in told


LOGIN = """
import json, pathlib, sys
token, logins = map(pathlib.Path, sys.argv[1:])
logins.write_text(logins.read_text() + "once ")
status = {"token": token.read_text()}
kind = {"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1"}
print(json.dumps({**kind, "status": status}))
"""


def test_a_login_command_runs_once_and_again_when_its_token_is_refused(
    kubernetes, tmp_path, monkeypatch
):
    token, logins = tmp_path / "token", tmp_path / "logins"
    token.write_text(kubernetes_server.TOKEN)
    logins.write_text("")
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", LOGIN, str(token), str(logins)],
            "interactiveMode": "Never",
        }
    }
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    record = Record(place=Place.find("here", "default"), names=Names.of_cluster("mine", "default"))
    for _ in range(3):
        assert record.cluster().found() is None
    assert logins.read_text() == "once "
    token.write_text("another")
    monkeypatch.setattr(kubernetes_server, "TOKEN", "another")
    for _ in range(3):
        assert record.cluster().found() is None
    assert logins.read_text() == "once once "
    token.write_text("wrong")
    monkeypatch.setattr(kubernetes_server, "TOKEN", "a third")
    with pytest.raises(RefusedError, match="does not know you"):
        record.cluster().found()


def test_another_server_under_the_same_context_is_found(kubernetes):
    """As where a cluster was destroyed and made again, while this process runs."""
    record = Record(place=Place.find("here", "default"), names=Names.of_cluster("mine", "default"))
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    right, cluster["server"] = cluster["server"], "http://127.0.0.1:1"
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    with pytest.raises(UnreachableError, match=r"does not answer at http://127\.0\.0\.1:1"):
        record.cluster().found()
    cluster["server"] = right
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    assert record.cluster().found() is None
