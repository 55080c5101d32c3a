"""`RayCluster` without a cluster: its states, its errors, and what it leaves behind.

The target is a stand-in that does as it is told, and so are `ray.init` and `ray.shutdown`; the
context manager against real clusters is tested in tests/integration.
"""

import contextlib
import itertools
import os
import signal
import threading

import pytest
import ray
from fake_target import VARIABLES, FakeRay, FakeTarget, node

from sunspot.cluster import ExternalResourceError, IllegalStateTransitionError, RayCluster
from sunspot.cluster_states import ALLOWED_TRANSITIONS, ResourceState, ResourceStatus
from sunspot.errors import SunspotError, UsageError
from sunspot.spec import RayNodeConfig, SimpleRayCluster
from sunspot.stack import Stack
from sunspot.targets import clusters
from sunspot.targets.protocol import WaitsForOthers

CONFIG = SimpleRayCluster(
    n_nodes=1, node_config=RayNodeConfig(cpu=1, memory_gb=2), ray_version="2.60.0"
)
HAPPY = ["ACTIVATING", "ACTIVATING", "ACTIVE", "DEACTIVATING", "DEACTIVATED"]


@pytest.fixture
def target(tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("ab" * 32)
    fake = FakeTarget(token)
    monkeypatch.setattr(clusters, "get", lambda _name: fake)
    return fake


@pytest.fixture
def fake_ray(monkeypatch):
    fake = FakeRay()
    monkeypatch.setattr(ray, "init", fake.init)
    monkeypatch.setattr(ray, "shutdown", fake.shutdown)
    monkeypatch.setattr(ray, "is_initialized", lambda: fake.initialized)
    return fake


@pytest.fixture
def states():
    return []


@pytest.fixture
def make(target, fake_ray, states):
    def make(**arguments):
        callback = arguments.pop("on_state", lambda state, _message: states.append(state.value))
        return RayCluster(**{"config": CONFIG, "on_state": callback, **arguments})

    return make


# What cannot be made


@pytest.mark.parametrize("config", [None, {}, "dev", RayNodeConfig(cpu=1, memory_gb=2)])
def test_the_config_must_be_one(make, config):
    with pytest.raises(UsageError, match="config must be a RayClusterConfig, not"):
        make(config=config)


@pytest.mark.parametrize("seconds", [0, -1, -0.5, float("nan")])
@pytest.mark.parametrize("argument", ["activation_timeout_seconds", "deactivation_timeout_seconds"])
def test_timeouts_must_be_positive(make, argument, seconds):
    with pytest.raises(UsageError) as caught:
        make(**{argument: seconds})
    assert str(caught.value) == f"{argument} must be more than 0 s, not {seconds!r}"


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "/elsewhere", ".hidden", "a b", "x" * 101])
def test_a_name_that_would_leave_the_state_folder_is_refused(make, name):
    # The local target makes a folder of that name, and removes it with all that is in it.
    with pytest.raises(UsageError, match="name"):
        make(name=name)


def test_a_target_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="moon"):
        RayCluster(config=CONFIG, target="moon")


def test_a_new_cluster_is_created_and_has_no_address(make, target):
    cluster = make(name="mine")
    assert (cluster.name, cluster.state, cluster.config) == ("mine", ResourceState.CREATED, CONFIG)
    assert "mine" in cluster.message
    with pytest.raises(SunspotError, match="cluster mine is CREATED; it has no address now"):
        cluster.handle.token()
    assert target.calls == []
    assert make().name != make().name


# States


def test_every_state_has_its_transitions_and_the_last_ones_have_none():
    assert set(ALLOWED_TRANSITIONS) == set(ResourceState)
    for state, following in ALLOWED_TRANSITIONS.items():
        assert state.is_terminal() == (not following)
        assert ResourceState.CREATED not in following
    assert [state.value for state in ResourceState if state.is_terminal()] == [
        "DEACTIVATED",
        "FORCE_KILLED",
    ]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ResourceState, ResourceState)))
def test_only_allowed_transitions_happen(make, before, after):
    cluster = make(name="mine")
    life = cluster._life
    life.status = ResourceStatus(state=before, message="before")
    if after in ALLOWED_TRANSITIONS[before]:
        life._move(after, "a message")
        assert (cluster.state, cluster.message) == (after, "a message")
        return
    with pytest.raises(IllegalStateTransitionError) as caught:
        life._move(after, "a message")
    assert f"cluster mine is {before.value} and cannot become {after.value}" in str(caught.value)
    assert "make a new RayCluster" in str(caught.value)
    assert cluster.state is before


def test_a_life_without_trouble(make, target, fake_ray, states):
    seen = []
    with make(
        name="mine",
        activation_timeout_seconds=12,
        forward_logs=False,
        on_state=lambda state, message: seen.append((state.value, message)),
    ) as cluster:
        assert cluster.state is ResourceState.ACTIVE
        assert cluster.handle.head_address == "127.0.0.1:1"
        assert target.calls == ["up 12"]
    assert cluster.state is ResourceState.DEACTIVATED
    assert target.calls == ["up 12", "down"]
    assert [state for state, _ in seen] == HAPPY
    assert seen[1] == ("ACTIVATING", "one node is up")
    assert all("mine" in message for state, message in (seen[0], *seen[2:]))
    (init,) = fake_ray.calls
    assert (init["address"], init["log_to_driver"]) == ("127.0.0.1:1", False)
    with pytest.raises(SunspotError, match="DEACTIVATED"):
        cluster.handle.token()


def test_a_cluster_has_one_life(make, target):
    cluster = make()
    with cluster:
        pass
    with pytest.raises(
        IllegalStateTransitionError, match="DEACTIVATED and cannot become ACTIVATING"
    ):
        cluster.__enter__()
    assert target.calls == ["up 900", "down"]


def test_a_ray_that_is_initialised_already_is_refused(make, target, fake_ray, states):
    fake_ray.initialized = True
    with pytest.raises(
        SunspotError, match=r"initialised in this process already.*ray\.shutdown\(\)"
    ):
        make().__enter__()
    assert target.calls == []
    assert states == []


# Trouble


def test_a_name_that_is_up_already_is_refused_and_that_cluster_stays(make, target, states):
    target.taken = ["dev"]
    with pytest.raises(SunspotError, match=r"'dev' is up already.*another name"):
        make(name="dev").__enter__()
    assert target.calls == []
    assert states == []


def test_ctrl_c_in_the_teardown_does_not_cut_it_short(make, target):
    def interrupt(state, _message):
        if state is ResourceState.DEACTIVATING:
            os.kill(os.getpid(), signal.SIGINT)

    with make(on_state=interrupt) as cluster:
        pass
    assert target.calls[-1] == "down"
    assert cluster.state is ResourceState.DEACTIVATED


def test_a_bodys_error_comes_out_and_the_cluster_goes(make, target, states):
    with pytest.raises(ZeroDivisionError) as caught, make():
        raise ZeroDivisionError
    assert not hasattr(caught.value, "__notes__")
    assert target.calls == ["up 900", "down"]
    assert states == HAPPY


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), ValueError("mine")])
def test_a_teardown_error_does_not_mask_the_bodys(make, target, error):
    target.down_error = SunspotError("the disk is on fire")
    cluster = make(name="mine")
    with pytest.raises(type(error)) as caught, cluster:
        raise error
    assert caught.value is error
    (note,) = error.__notes__
    assert "cluster mine" in note
    assert "the disk is on fire" in note
    assert cluster.state is ResourceState.FORCE_KILLED
    assert "the disk is on fire" in cluster.message


def test_a_teardown_error_alone_is_raised(make, target, states):
    target.down_error = RuntimeError("the disk is on fire")
    cluster = make(name="mine")
    with (
        pytest.raises(ExternalResourceError, match="Could not deactivate mine: the disk") as caught,
        cluster,
    ):
        pass
    assert caught.value.__cause__ is target.down_error
    assert states == [*HAPPY[:-1], "FORCE_KILLED"]


def test_a_teardown_that_takes_too_long_is_given_up(make, target, states):
    target.down_waits_for = threading.Event()
    cluster = make(name="mine", deactivation_timeout_seconds=0.05)
    try:
        with pytest.raises(ExternalResourceError) as caught, cluster:
            pass
    finally:
        target.down_waits_for.set()
    assert "Timed out deactivating mine after 0.05 s" in str(caught.value)
    assert "sunspot status mine, and go on: sunspot down mine" in str(caught.value)
    assert states[-1] == "FORCE_KILLED"


def test_an_activation_that_fails_says_why_and_takes_away_what_began(make, target, states):
    target.up_error = SunspotError("node 'workers-0' could not start")
    with pytest.raises(ExternalResourceError, match="Could not activate mine: node 'workers-0'"):
        make(name="mine").__enter__()
    assert target.calls == ["up 900", "down"]
    assert states == ["ACTIVATING", "ACTIVATING", "DEACTIVATING", "DEACTIVATED"]


def test_ctrl_c_while_activating_takes_away_what_began(make, target, states):
    target.up_error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        make().__enter__()
    assert target.calls == ["up 900", "down"]
    assert states[-1] == "DEACTIVATED"


def test_a_driver_that_cannot_connect_takes_the_cluster_away(make, target, fake_ray, states):
    fake_ray.init_error = ConnectionError("no route")
    with pytest.raises(ExternalResourceError, match="no route"):
        make().__enter__()
    assert target.calls == ["up 900", "down"]
    assert states == ["ACTIVATING", "ACTIVATING", "DEACTIVATING", "DEACTIVATED"]


def test_a_shutdown_that_fails_does_not_keep_the_cluster(make, target, monkeypatch):
    def shutdown():
        raise RuntimeError("cannot say goodbye")

    monkeypatch.setattr(ray, "shutdown", shutdown)
    with make() as cluster:
        pass
    assert target.calls == ["up 900", "down"]
    assert cluster.state is ResourceState.DEACTIVATED


@pytest.mark.parametrize("bad", ["ACTIVATING", "ACTIVE", "DEACTIVATING", "DEACTIVATED"])
def test_a_callback_that_fails_does_not_keep_the_cluster(make, target, bad):
    def on_state(state, _message):
        if state.value == bad:
            raise LookupError("the callback's own mistake")

    # Whether the callback's error comes out or is logged is open; that the cluster goes is not.
    with contextlib.suppress(LookupError), make(on_state=on_state):
        pass
    assert target.calls in ([], ["up 900", "down"])


def test_a_lost_worker_is_told_and_the_body_goes_on(make, target, monkeypatch):
    monkeypatch.setattr("sunspot.cluster_life.WATCH_INTERVAL_S", 0.01)
    told = threading.Event()
    messages = []

    def on_state(state, message):
        messages.append((state.value, message))
        if "Lost" in message:
            told.set()

    with make(on_state=on_state) as cluster:
        target.found = [
            node("head", "up"),
            node("workers-0", "lost"),
            node("workers-1", "starting"),
        ]
        assert told.wait(10)
        assert cluster.state is ResourceState.ACTIVE
        assert [n.name for n in cluster.nodes()] == ["head", "workers-0", "workers-1"]
    assert messages[3] == ("ACTIVE", "Lost workers-0; 2 nodes are left.")
    assert [message for _, message in messages].count(messages[3][1]) == 1


# The environment


@pytest.mark.parametrize("trouble", [None, "body", "init", "down"])
def test_the_environment_is_as_before_whatever_happened(
    make, target, fake_ray, monkeypatch, trouble
):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "the user's own")
    monkeypatch.setenv("RAY_ADDRESS", "the user's cluster")
    before = dict(os.environ)
    fake_ray.init_error = ConnectionError() if trouble == "init" else None
    target.down_error = OSError() if trouble == "down" else None
    expected = {"body": ValueError, "init": ExternalResourceError, "down": ExternalResourceError}

    def use():
        with make() as cluster:
            assert os.environ["RAY_ADDRESS"] == cluster.handle.head_address
            if trouble == "body":
                raise ValueError

    with pytest.raises(expected[trouble]) if trouble else contextlib.nullcontext():
        use()
    assert dict(os.environ) == before
    (during,) = fake_ray.environments
    assert during == {
        "RAY_ADDRESS": "127.0.0.1:1",
        "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:2",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(target.token),
        "RAY_AUTH_TOKEN": None,  # it would win over the file
    }


def test_a_cluster_that_no_driver_reaches_is_told_how_to_run_the_program(make, target, states):
    target.driver_address = None
    with pytest.raises(ExternalResourceError, match="sunspot submit --stack"):
        make().__enter__()
    assert target.calls == ["up 900", "down"]
    assert states[-1] == "DEACTIVATED"


def test_what_is_left_after_the_block_is_an_error(make, target):
    target.left = ["disk forgotten"]
    with pytest.raises(ExternalResourceError, match="disk forgotten"), make():
        pass


def test_a_stack_is_taken_with_all_that_its_file_says(target, fake_ray):
    stack = Stack.parse(
        {
            "azure-native:location": "uksouth",
            "sunspot:cluster": {"head_node": {"vm_size": "Standard_D4s_v5"}},
        },
        name="mine",
    )
    with RayCluster.from_stack(stack) as cluster:
        assert cluster.name == "mine"
    assert target.stacks == [stack.for_target("azure")]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"was_up": True}, SunspotError, "is up already"),
        ({"step": WaitsForOthers(), "up_error": KeyboardInterrupt("^C")}, KeyboardInterrupt, "C"),
        ({"up_error": UsageError("Ann has it")}, ExternalResourceError, "Ann has it"),
    ],
)
def test_a_cluster_of_somebody_else_is_left_alone(make, target, states, given, error, said):
    vars(target).update(given)
    with pytest.raises(error, match=said):
        make().__enter__()
    assert (target.calls, states[-1]) == (["up 900"], "DEACTIVATED")


@pytest.mark.parametrize("failures", [1, 3])
def test_a_busy_head_is_asked_for_a_server_of_its_own_again(
    make, target, fake_ray, states, failures
):
    target.driver_address = "ray://127.0.0.1:10001"
    fake_ray.init_errors = [ConnectionAbortedError("Initialization failure")] * failures
    with contextlib.suppress(ExternalResourceError), make():
        pass
    assert len(fake_ray.calls) == min(failures + 1, 3)
    assert ("ACTIVE" in states) == (failures < 3)
