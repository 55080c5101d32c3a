"""`sunspot serve`, with Serve's REST API on the loopback."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from job_api import served
from local_stacks import WORKERS, stack, write
from serve_api import (
    PATH,
    ServeApi,
    ServeHandler,
    application,
    deployment,
    instance,
    replica,
)
from typer.testing import CliRunner

from sunspot.cli import serve_commands
from sunspot.cli.app import app
from sunspot.errors import SunspotError
from sunspot.node.free_ports import free_port
from sunspot.node.processes import Process
from sunspot.ray import serving
from sunspot.targets import abilities, clusters
from sunspot.targets.callers import Callers
from sunspot.targets.local.target import LocalTarget
from sunspot.targets.records import STATE_DIRECTORY_VARIABLE

DEADLINE_S = 60.0

# What Serve says of an application that cannot be imported (2.60), shortened.
NOT_IMPORTED = """Deploying app 'default' failed with exception:
Traceback (most recent call last):
  File "application_state.py", line 1737, in build_serve_application
ModuleNotFoundError: No module named 'main'
"""
# What pydantic prints of a config that Serve does not take.
INVALID = """2 validation errors for ServeDeploySchema
applications.0.import_path
  Field required [type=missing, input_value={'name': 'default'}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.14/v/missing
proxy_location
  Input should be 'Disabled', 'HeadOnly' or 'EveryNode' [type=enum, input_value='X', input_type=str]
    For further information visit https://errors.pydantic.dev/2.14/v/enum
"""
PORT_TAKEN = """Traceback (most recent call last):
  File "optional_utils.py", line 70, in decorator
ray.exceptions.RayTaskError(RuntimeError): ray::ProxyActor.ready()
  File "http_util.py", line 786, in start_asgi_http_server
RuntimeError: Failed to bind to address '127.0.0.1:8000'.
"""


@pytest.fixture
def api(tmp_path, monkeypatch):
    """A cluster "dev" that is up as far as its records say, and its REST API."""
    monkeypatch.setenv(STATE_DIRECTORY_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(serving, "POLL_S", 0.01)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "main.py").write_text("app = None\n")
    monkeypatch.chdir(tmp_path / "project")
    api = ServeApi()
    with served(api, handler=ServeHandler) as port:
        records = LocalTarget(tmp_path / "state" / "clusters").clusters
        folder = write(records, stack(WORKERS), address="127.0.0.1:1", ready_at=1.0)
        folder.update_cluster(dashboard_port=port)
        folder.token.write_text(api.token)
        folder.record_process("head", Process.current())
        api.nodes = [{"node_id": "n0", "node_name": "head"}, {"node_id": "n1", "node_name": "w-1"}]
        yield api


@pytest.fixture
def port():
    """A port on which nothing listens."""
    return str(free_port(set()))


def run(*arguments):
    return CliRunner().invoke(app, ["serve", *arguments])


def failed(code, *arguments):
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


# Deploying


def test_an_application_is_deployed_with_its_folder_and_waited_for(api, port):
    starting = deployment(status="UPDATING", target=2, replicas=[replica("STARTING")])
    api.after = [
        instance(application(status="DEPLOYING", deployments=[]), port=int(port)),
        instance(application(status="DEPLOYING", deployments=[starting]), port=int(port)),
        instance(application(), proxy="STARTING", port=int(port)),
        instance(application(), port=int(port)),
    ]
    result = run("deploy", "main:app", "--port", port)
    assert result.exit_code == 0, result.output
    assert f"default is RUNNING: http://127.0.0.1:{port}/" in result.stdout
    assert "Food 0 of 2" in result.stderr
    assert f"sunspot forward dev {port}" in result.stderr
    (config,) = api.deployed
    assert config["proxy_location"] == "HeadOnly"
    assert config["http_options"] == {"host": "127.0.0.1", "port": int(port)}
    (sent,) = config["applications"]
    assert sent["runtime_env"]["working_dir"].removeprefix("gcs://") in api.packages
    assert len(api.after) == 1


def test_a_stack_that_opens_serve_has_its_ingress_on_every_address(api, monkeypatch):
    callers = Callers(address="10.60.0.4", sources=("10.1.2.0/24",))
    monkeypatch.setattr(LocalTarget, "callers", lambda *_: callers, raising=False)
    monkeypatch.setattr(serve_commands, "_listens", lambda *_: False)
    api.after = [instance(application(), host="0.0.0.0")]  # noqa: S104
    result = run("deploy", "main:app")
    assert result.exit_code == 0, result.output
    (config,) = api.deployed
    assert config["http_options"] == {"host": "0.0.0.0", "port": 8000}  # noqa: S104
    said = " ".join(result.stderr.split())
    assert "open to 10.1.2.0/24" in said
    assert "http://10.60.0.4:8000" in said


def test_what_is_no_longer_deployed_is_named(api, port):
    api.before = instance(application("old"), application("default"), port=int(port))
    api.after = [instance(application("old", "DELETING"), application(), port=int(port))]
    result = run("deploy", "main:app", "--port", port)
    assert result.exit_code == 0, result.output
    assert "does not have them: old" in " ".join(result.stderr.split())


def test_a_proxy_that_starts_too_slowly_is_waited_for(api, port):
    api.refusals = [(500, "ray::ProxyActor.ready() was killed")]
    api.after = [instance(application(), port=int(port))]
    result = run("deploy", "main:app", "--port", port)
    assert result.exit_code == 0, result.output
    assert len(api.deployed) == 1


def test_applications_that_are_not_there_are_not_taken_for_running(api, port):
    api.after = [instance(port=int(port)), instance(application(), port=int(port))]
    result = run("deploy", "main:app", "--port", port)
    assert result.exit_code == 0, result.output
    assert "default is RUNNING" in result.stdout


@pytest.mark.parametrize("then", [[], [application(status="DELETING", deployments=[])]])
def test_an_application_that_another_command_removes_is_not_waited_for(api, port, then):
    starts = application(status="DEPLOYING", deployments=[])
    api.after = [instance(starts, port=int(port)), instance(*then, port=int(port))]
    said = failed(1, "deploy", "main:app", "--port", port)
    assert "removed default" in said
    assert "sunspot serve status" in said


def test_a_failed_import_shows_its_own_error(api, port):
    api.after = [instance(application("default", "DEPLOY_FAILED", NOT_IMPORTED, deployments=[]))]
    said = failed(1, "deploy", "main:app", "--port", port)
    assert "ModuleNotFoundError: No module named 'main'" in said
    assert "runtime_env: {pip: [main]}" in said
    assert "in the working directory" in said
    assert "go on" not in said


def test_a_failed_constructor_shows_its_own_error_and_what_goes_on(api, port):
    api.before = instance(application(), port=int(port))
    message = "It failed to start. Error:\n\x1b[36mray::Food()\x1b[39m\nValueError: boom\n\n"
    broken = deployment(status="DEPLOY_FAILED", message=message, replicas=[replica()])
    failing = application(status="DEPLOY_FAILED", message="Failed", deployments=[broken])
    api.after = [instance(failing, port=int(port))]
    said = failed(1, "deploy", "main:app", "--port", port)
    assert "ValueError: boom" in said
    assert "deployed before go on" in said


def test_replicas_that_no_node_can_hold_name_the_nearest_node_type(api, port):
    api.before = instance(application(deployments=[deployment()]), port=int(port))
    message = (
        "ray.exceptions.ActorUnschedulableError: The actor is not schedulable: Tasks or actors "
        "with resource shapes [{GPU: 1, CPU: 1}] failed to schedule because there are not enough "
        "resources for the tasks or actors on the whole cluster."
    )
    broken = deployment(status="DEPLOY_FAILED", message=message)
    failing = application(status="DEPLOY_FAILED", message="Failed", deployments=[broken])
    api.after = [instance(failing, port=int(port))]
    said = failed(1, "deploy", "main:app", "--port", port)
    assert "GPU: asked 1, the nearest node type" in said
    assert "go on" not in said  # nothing ran before


def test_nodes_without_serve_are_told_what_to_install(api, port):
    api.answers["GET", PATH] = 501, "Serve dependencies are not installed."
    for arguments in (("deploy", "main:app", "--port", port), ("status",)):
        assert "make setup-serve" in failed(2, *arguments)
    assert api.packages == {}


def test_a_config_that_serve_refuses_is_explained_in_one_line(api, port):
    api.refusal = 400, INVALID
    said = failed(2, "deploy", "main:app", "--port", port)
    assert "applications.0.import_path: Field required" in said
    assert "proxy_location: Input should be 'Disabled'" in said
    assert "https://" not in said


def test_a_port_on_which_something_listens_is_refused_before_anything_is_sent(api):
    taken = clusters.get("local").handle("dev").job_address.rpartition(":")[2]  # the API's own
    said = failed(2, "deploy", "main:app", "--port", taken)
    assert f"127.0.0.1:{taken}" in said
    assert api.packages == {}
    assert api.deployed == []


def test_a_port_that_serve_cannot_have_leaves_nothing_behind(api, port):
    api.refusal = 500, PORT_TAKEN
    api.submitted = ["RUNNING", "STOPPED"]
    assert "127.0.0.1:8000" in failed(2, "deploy", "main:app", "--port", port)
    assert api.ended
    assert [call for call in api.calls() if call.startswith("POST") and call.endswith("/stop")]


def test_a_running_ingress_cannot_move(api, port):
    api.before = instance(application(), port=8000)
    said = failed(2, "deploy", "main:app", "--port", port)
    assert "127.0.0.1:8000" in said
    assert port in said
    assert api.deployed == []
    assert not api.ended


@pytest.mark.parametrize("what", ["nothing.yaml", "main"])
def test_bad_input_is_refused_before_the_cluster_is_asked(api, what):
    assert repr(what) in failed(2, "deploy", what)
    assert api.seen == []


def test_a_dashboard_that_is_away_for_a_moment_is_asked_again(api, port):
    api.after = [instance(application(status="DEPLOYING")), instance(application())]
    api.faults["GET", PATH] = [None, (503, "the GCS may be down")]
    assert run("deploy", "main:app", "--port", port).exit_code == 0


def test_a_dashboard_that_stays_away_is_an_error(api, port, monkeypatch):
    monkeypatch.setattr(serving, "AWAY_S", 0.0)
    api.faults["GET", PATH] = [None, *[(503, "the GCS may be down")] * 20]
    assert "the GCS may be down" in failed(1, "deploy", "main:app", "--port", port)


def test_a_dashboard_that_cannot_be_found_again_is_looked_for_until_it_answers(
    api, port, monkeypatch
):
    handle, refused = LocalTarget.handle, []

    def away_once(*arguments):
        if api.deployed and not refused:
            refused.append(arguments)
            raise SunspotError("no SSH to the head")
        return handle(*arguments)

    monkeypatch.setattr(LocalTarget, "handle", away_once)
    api.faults["GET", PATH] = [None, (503, "the GCS may be down")]
    result = run("deploy", "main:app", "--port", port)
    assert result.exit_code == 0, result.output
    assert refused


def test_an_application_that_does_not_get_ready_is_not_waited_for_for_ever(api, port):
    waits = deployment(status="UPDATING", message="no node has the GPU", target=1, replicas=[])
    api.after = [instance(application(status="DEPLOYING", deployments=[waits]))]
    said = failed(1, "deploy", "main:app", "--port", port, "--timeout", "1")
    assert "after 1 s" in said
    assert "no node has the GPU" in said
    assert "--timeout" in said
    assert not api.ended


def test_a_time_to_wait_that_is_none_is_refused(api, port):
    result = run("deploy", "main:app", "--port", port, "--timeout", "0")
    assert result.exit_code == 2
    assert "--timeout" in result.output
    assert api.seen == []


def test_a_config_with_a_host_of_its_own_is_not_asked_for_on_the_loopback(api):
    taken = clusters.get("local").handle("dev").job_address.rpartition(":")[2]  # the API's own
    config = {"http_options": {"host": "10.60.0.4"}, "applications": [{"import_path": "main:app"}]}
    Path("serve.yaml").write_text(json.dumps(config))
    assert run("deploy", "serve.yaml", "--port", taken).exit_code == 0


def test_forward_is_not_advised_where_the_target_lacks_it(api, port, monkeypatch):
    monkeypatch.setattr(abilities, "find", lambda *_: None)
    result = run("deploy", "main:app", "--port", port)
    assert result.exit_code == 0, result.output
    assert "sunspot forward" not in result.stderr
    assert "head's own" in result.stderr


def test_ctrl_c_says_that_serve_goes_on(api, port):
    api.after = [instance(application(status="DEPLOYING"))]
    command = [sys.executable, "-m", "sunspot.cli", "serve", "deploy", "main:app", "--port", port]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            seen = []
            for line in process.stderr:
                seen.append(line)
                if "DEPLOYING" in line:
                    break
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 130, seen
    assert "sunspot serve status dev" in errors


def test_its_files_are_kept_by_a_job_until_others_are_deployed(api, port):
    api.submitted = ["RUNNING"]
    assert run("deploy", "main:app", "--port", port).exit_code == 0
    assert run("deploy", "main:app", "--port", "8000").exit_code == 0  # the port that it has now
    (first,) = api.jobs
    assert first.startswith("serve-files-")
    assert api.body("POST", "/api/jobs/")["runtime_env"] == {
        "working_dir": api.deployed[0]["applications"][0]["runtime_env"]["working_dir"]
    }
    Path("main.py").write_text("app = 2\n")
    api.states[first] = ["RUNNING", "RUNNING", "RUNNING", "STOPPED"]
    assert run("deploy", "main:app", "--port", "8000").exit_code == 0
    assert f"POST /api/jobs/{first}/stop" in api.calls()
    assert len(api.jobs) == 2


# Status


def test_status_shows_replicas_and_their_nodes(api):
    busy = deployment(
        status="UPSCALING",
        target=3,
        replicas=[replica(), replica(), replica("STARTING", "n0"), replica("STOPPING", "n0")],
    )
    api.before = instance(application("food", route="/food", deployments=[busy]))
    result = run("status")
    assert result.exit_code == 0, result.output
    for part in ("127.0.0.1:8000", "HeadOnly", "food", "UPSCALING", "2/3", "w-1"):
        assert part in result.stdout
    (shown,) = json.loads(run("status", "dev", "--json").stdout)["applications"]
    assert shown["deployments"][0]["replicas"] == {"RUNNING": 2, "STARTING": 1, "STOPPING": 1}
    assert shown["deployments"][0]["nodes"] == ["w-1", "w-1"]


def test_status_has_the_error_of_an_application(api):
    api.before = instance(application(status="DEPLOY_FAILED", message=NOT_IMPORTED, deployments=[]))
    assert "No module named 'main'" in run("status").stdout
    (shown,) = json.loads(run("status", "--json").stdout)["applications"]
    assert shown["message"] == NOT_IMPORTED


def test_status_without_serve_running(api):
    result = run("status")
    assert result.exit_code == 0
    assert "does not run" in result.stdout
    assert json.loads(run("status", "--json").stdout) == {
        "name": "dev",
        "ingress": None,
        "applications": [],
    }
