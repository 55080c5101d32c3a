"""The `sunspot` command: errors, exit codes, and what it hands to the cluster.

Where a command needs a cluster, its records are real files and its job API is the loopback server
of tests/ray; nothing of the command is replaced.
"""

import json
import os
import subprocess
import sys

import jsonschema
import pytest
from cli_runs import failed, run
from local_stacks import WORKERS, stack, write

from sunspot import stack as stacks
from sunspot import stack_problems
from sunspot.errors import UsageError
from sunspot.node.processes import Process
from sunspot.targets.local import plan
from sunspot.targets.scaling import Size

pytestmark = pytest.mark.usefixtures("place")

WITHOUT_STACKS = "start it with: sunspot up --file FILE, or in a project's folder: sunspot up STACK"


# Wrong use


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["bring-up"], "No such command 'bring-up'"),
        (["--nonsense"], "--nonsense"),
        (["up", "--nonsense"], "--nonsense"),
        (["up", "--port", "many"], "'--port'"),
        (["submit"], "Missing argument"),
        (["logs"], "sunspot logs primes-3f9a1c, or: sunspot logs --node head"),
        (["logs", "x", "--node", "head"], "either a job's id or a node's name"),
        (["scale"], "Missing argument"),
    ],
)
def test_wrong_use_is_exit_code_2(arguments, part):
    assert part in failed(2, *arguments)


@pytest.mark.parametrize(
    "change",
    [
        *("workers", "workers=", "=2", "workers=two", "workers=-1", "workers=1.5", "workers=²"),
        *("workers=1:", "workers=:2", "workers=1:2:3", "workers=a:b", "workers=" + 5000 * "1"),
    ],
)
def test_a_scale_that_is_no_group_and_number_is_refused(change):
    message = failed(2, "scale", "--", change)
    assert f"{change!r} is not of the form GROUP=N" in message
    assert "workers=2" in message


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["workers=4:2"], "the minimum 4 is above the maximum 2"),
        (["workers=1", "workers=1:2"], "group 'workers' is given twice, 1 and 1:2"),
        (["dev", "workers=1", "--stack", "gpu"], "the stack is given twice, 'dev' and 'gpu'"),
    ],
)
def test_a_scale_that_contradicts_itself_is_refused(arguments, part):
    assert part in failed(2, "scale", *arguments)


def test_scale_takes_the_stack_as_its_first_argument(cluster):
    message = failed(2, "scale", "dev", "workers=1:9")
    assert "workers=1:9 is outside 0 to 4" in message
    assert "stack 'gpu' is not up" in failed(1, "scale", "gpu", "workers=1")


DEV = """config:
  sunspot:target: local
  sunspot:cluster:
    head_node: {cpu: 2, memory_gb: 4}
    scaling_groups:
      - {name: workers, market: spot, min_workers: 0, max_workers: 4, worker_nodes:
          {cpu: 2, memory_gb: 4}}
    autoscaler_config: {cpu: 0.5, memory_gb: 1}
    ray_version: 2.60.0
"""


def test_up_and_status_say_what_was_scaled_by_hand_and_how_to_keep_either(cluster, place):
    _, folder = cluster
    file = place / "Pulumi.dev.yaml"
    file.write_text(DEV)
    assert "differ" not in run("status").output
    assert "scal" not in run("up").stderr

    plan.set_size(folder, "workers", Size(minimum=1, maximum=3))
    line = (
        "group 'workers' was scaled by hand to 1:3; Pulumi.dev.yaml says 0:4. To keep 1:3, write "
        "min_workers: 1, max_workers: 3 there; to go back: sunspot scale dev workers=0:4"
    )
    again = run("up")
    assert line in " ".join(again.stderr.split())
    assert "other settings" not in again.stderr
    assert plan.size(folder, "workers") == Size(minimum=1, maximum=3)
    assert line in " ".join(run("status").stdout.split())
    assert json.loads(run("status", "--json").stdout)["differences"] == [line]

    # Kept, in the file: then nothing differs any more.
    file.write_text(DEV.replace("min_workers: 0, max_workers: 4", "min_workers: 1, max_workers: 3"))
    assert "scaled" not in run("status").output
    again = run("up")
    assert (again.exit_code, "scaled" in again.stderr) == (0, False)
    assert "other settings" not in again.stderr


def test_another_setting_of_the_file_needs_a_new_cluster(cluster, place):
    (place / "Pulumi.dev.yaml").write_text(DEV.replace("max_workers: 4", "max_workers: 8"))
    again = run("up", "dev", "--target", "local")
    told = " ".join(again.stderr.split())
    assert "other settings than Pulumi.dev.yaml has now" in told
    assert "sunspot down dev && sunspot up dev --target local" in told
    assert "scaled" not in told


@pytest.mark.parametrize(
    "text",
    ["widget=1", "[1]", '"x"', '{"widget": "1"}', '{"widget": true}', '{"widget": null}', ""],
)
def test_resources_that_are_no_json_object_of_numbers_are_refused(text):
    message = failed(2, "submit", "--resources", text, "--", "true")
    assert f"--resources {text!r} is not a JSON object of numbers" in message
    assert '{"widget": 1}' in message


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["jobs"],
        ["submit", "--", "true"],
        ["logs", "x"],
        ["logs", "--node", "head"],
        ["stop", "x"],
        ["dashboard"],
        ["scale", "workers=1"],
    ],
)
def test_without_a_cluster_every_command_says_how_to_start_one(arguments):
    message = failed(1, *arguments)
    assert message == f"error: no cluster is up; {WITHOUT_STACKS}"


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["gpu"], "sunspot up gpu"),
        (["cpu", "dev"], "sunspot up dev"),
        (["cpu", "gpu"], "sunspot up STACK (here are cpu, gpu)"),
    ],
)
def test_without_a_cluster_the_stacks_that_could_be_started_are_named(place, names, told):
    for name in names:
        (place / f"Pulumi.{name}.yaml").touch()
    assert failed(1, "status").endswith(f"start it with: {told}")
    (place / "Pulumi.yaml").unlink()
    assert failed(1, "status").endswith(f"start it with: {told}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["down"], "no cluster is up - nothing to do"),
        (["down", "gpu"], "stack 'gpu' is not up - nothing to do"),
    ],
)
def test_nothing_to_take_down_is_no_error(arguments, expected):
    result = run(*arguments)
    assert (result.exit_code, result.stdout.strip()) == (0, expected)


@pytest.mark.parametrize("options", [(), ("--target", "local")])
def test_a_stack_without_a_file_may_be_another_folders(place, options):
    (place / "Pulumi.mine.yaml").write_text("config: {}\n")
    told = {name: run("down", name, *options).stderr for name in ("yours", "mine")}
    assert "no file of a stack 'yours' here" in " ".join(told["yours"].split())
    assert "no file" not in told["mine"]


def test_another_users_stack_above_is_not_called_down(place, monkeypatch):
    (place / "Pulumi.mine.yaml").write_text("config: {}\n")
    (place / "below").mkdir()
    monkeypatch.chdir(place / "below")
    monkeypatch.setattr(stack_problems, "ROOT", os.getuid() + 1)
    monkeypatch.setattr(stack_problems.os, "getuid", lambda: stack_problems.ROOT)
    assert "belongs to another user" in failed(2, "down", "mine")
    assert run("down", "yours").exit_code == 0


def test_a_stack_that_does_not_exist_lists_those_that_do(place):
    (place / "Pulumi.mine.yaml").write_text("config: {}\n")
    message = failed(2, "up", "yours")
    assert "no stack 'yours'" in message
    assert "mine" in message


def test_a_target_that_does_not_exist_is_refused(place):
    (place / "Pulumi.dev.yaml").write_text(
        "config:\n  sunspot:cluster:\n    head_node: {cpu: 1, memory_gb: 2}\n"
    )
    assert "no target 'moon'" in failed(2, "up", "dev", "--target", "moon")


def test_several_clusters_must_be_named_to_go_down(clusters):
    for name in ("a", "b"):
        write(clusters, stack(WORKERS, name=name))
    message = failed(2, "down")
    assert "several clusters are up (a, b)" in message
    assert "sunspot down NAME" in message


# What needs no cluster


def test_schema_is_valid_and_takes_the_shipped_stacks(request):
    result = run("schema")
    assert result.exit_code == 0
    schema = json.loads(result.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    dev = stacks.load("dev", request.config.rootpath)
    jsonschema.validate(dev.model_dump(mode="json", exclude_none=True)["cluster"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"head_node": {}, "nonsense": 1}, schema)


def test_status_of_a_cluster_and_of_a_dead_head(cluster):
    _, folder = cluster
    result = run("status")
    assert result.exit_code == 0
    assert "head" in result.stdout
    assert json.loads(run("status", "--json").stdout)["problem"] is None
    folder.record_process("head", Process(pid=os.getpid(), start_time=1.0))
    dead = run("status", "--json")
    assert dead.exit_code == 1
    assert "is dead" in json.loads(dead.stdout)["problem"]
    assert "sunspot down dev" in dead.stderr
    for arguments in (["jobs"], ["submit", "--", "true"], ["logs", "x"], ["dashboard"]):
        assert "the head of 'dev' is dead" in failed(1, *arguments)


def test_dashboard_prints_the_address_alone_on_stdout(cluster):
    _, folder = cluster
    result = run("dashboard")
    assert result.stdout == f"http://127.0.0.1:{folder.cluster().dashboard_port}\n"
    assert str(folder.token) in result.stderr.replace("\n", "")


# How errors look


def test_errors_are_one_message_without_colour_in_a_pipe():
    done = subprocess.run(
        [sys.executable, "-m", "sunspot.cli", "status"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"error: no cluster is up; {WITHOUT_STACKS}\n"


def test_markup_in_a_message_is_printed_as_it_is():
    assert "stack '[red]x' is not up" in failed(1, "status", "[red]x")


@pytest.mark.parametrize("target", ["local", "moon"])
def test_ctrl_c_is_130(monkeypatch, target):
    def interrupted(_name):
        raise KeyboardInterrupt

    monkeypatch.setattr(stacks, "load", interrupted)
    assert "interrupted" in failed(130, "up", "dev", "--target", target)


def test_usage_errors_are_2_and_others_1(monkeypatch):
    def refused(_name):
        raise UsageError("wrong [key]")

    monkeypatch.setattr(stacks, "load", refused)
    assert failed(2, "up") == "error: wrong [key]"


# The timeline


def event(job, name="f"):
    return {"name": name, "ph": "X", "args": {"job_id": job}}


@pytest.fixture
def events(cluster):
    api, _ = cluster
    api.add("mine", "SUCCEEDED", job_id="02000000")
    api.add("early", "PENDING")
    api.timeline = [event("02000000"), event("03000000")]
    return api.timeline


def test_the_timeline_is_written_where_the_user_is(events, place):
    result = run("timeline")
    assert result.exit_code == 0, result.output
    (written,) = place.glob("timeline-dev-*.json")
    assert result.stdout.strip() == str(written.resolve())
    assert json.loads(written.read_text()) == events


def test_the_timeline_of_one_job_goes_into_the_file_that_is_named(events, place):
    result = run("timeline", "dev", "--job", "mine", "--out", "mine.json")
    assert result.exit_code == 0, result.output
    assert json.loads((place / "mine.json").read_text()) == events[:1]


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["--out", "gone/x.json"], 2, "gone/x.json"),
        (["--out", "."], 2, "--out ."),
        (["--job", "nope"], 2, "'nope'"),
        (["--job", "early"], 1, "no task of job 'early'"),
    ],
)
@pytest.mark.usefixtures("events")
def test_a_timeline_that_cannot_be_written_leaves_no_file(place, arguments, code, part):
    before = set(place.iterdir())
    assert part in failed(code, "timeline", *arguments)
    assert set(place.iterdir()) == before


# A cluster from a file


def test_up_reads_the_file_that_is_named_and_says_what_is_wrong_with_it(place):
    (place / "cluster.yaml").write_text("head_node: {cpus: 2}\n")
    message = failed(2, "up", "--file", "cluster.yaml")
    assert "cluster.yaml" in message
    assert "cpus" in message


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--target", "local"),
        ("--port", "6400", "--dashboard-port", "8300"),
    ],
)
def test_up_of_another_file_says_how_to_start_with_that_one(cluster, place, options):
    (place / "my dev.yaml").write_text("head_node: {cpu: 3, memory_gb: 4}\n")
    result = run("up", "dev", "--file", "my dev.yaml", *options)
    assert result.exit_code == 0, result.output
    assert "dev is up already" in result.stdout
    told = " ".join(result.stderr.split())
    assert " ".join(["sunspot up dev --file 'my dev.yaml'", *options]) in told
