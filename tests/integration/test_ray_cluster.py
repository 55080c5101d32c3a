"""`RayCluster`: a cluster for the length of a block, gone after it whatever happens in it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from harness import Sunspot, kill_node, what_is_left
from waiting import wait_for

from sunspot import RayCluster, RayNodeConfig, SimpleRayCluster
from sunspot.cluster import ExternalResourceError, IllegalStateTransitionError, ResourceState
from sunspot.errors import SunspotError

NODE = RayNodeConfig(cpu=1, memory_gb=2)
S = ResourceState

pytestmark = pytest.mark.usefixtures("in_the_home")


class Recorder:
    """Remembers each state; `messages` are theirs in the same order."""

    def __init__(self) -> None:
        self.states: list[ResourceState] = []
        self.messages: list[str] = []

    def __call__(self, state: ResourceState, message: str) -> None:
        self.states.append(state)
        self.messages.append(message)

    def steps(self) -> list[ResourceState]:
        """The states without those that follow themselves."""
        pairs = zip([None, *self.states], self.states, strict=False)
        return [state for before, state in pairs if state is not before]


def a_head(name: str, recorder: Recorder, **options: object) -> RayCluster:
    config = SimpleRayCluster(n_nodes=1, node_config=NODE)
    return RayCluster(config=config, name=name, on_state=recorder, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="class")
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture(scope="class")
def body(in_the_home: Sunspot, recorder: Recorder) -> Iterator[RayCluster]:
    """A cluster of two nodes, inside its block."""
    config = SimpleRayCluster(n_nodes=2, node_config=NODE)
    cluster = RayCluster(config=config, name="body", on_state=recorder)
    folder = in_the_home.folder("body")
    with cluster:
        yield cluster
    assert recorder.steps() == [S.ACTIVATING, S.ACTIVE, S.DEACTIVATING, S.DEACTIVATED]
    assert cluster.state is S.DEACTIVATED
    assert what_is_left(folder) == []


class TestTheBody:
    """One cluster for all; the last test takes its worker away."""

    def test_sees_every_node(self, body: RayCluster):
        import ray

        alive = [node for node in ray.nodes() if node["Alive"]]
        assert sorted(node["NodeName"] for node in alive) == ["head", "workers-0"]
        assert ray.cluster_resources()["CPU"] == 2
        assert body.state is S.ACTIVE
        assert {node.name: node.state for node in body.nodes()} == {"head": "up", "workers-0": "up"}

    @pytest.mark.usefixtures("body")
    def test_prints_what_tasks_print(self, capsys: pytest.CaptureFixture[str]):
        import ray

        @ray.remote
        def speak() -> None:
            print("said by a task")

        ray.get(speak.remote())
        printed: list[str] = []

        def heard() -> bool:
            printed.append(capsys.readouterr().out)
            return "said by a task" in "".join(printed)

        wait_for("the task's words on stdout", heard)

    @pytest.mark.usefixtures("body")
    def test_is_told_at_once_of_a_task_that_no_node_can_hold(self):
        import ray
        from ray.exceptions import TaskUnschedulableError

        @ray.remote(num_gpus=2)
        def impossible() -> None: ...

        with pytest.raises(TaskUnschedulableError):
            ray.get(impossible.remote(), timeout=300)

    def test_goes_on_when_a_worker_is_lost(
        self, body: RayCluster, recorder: Recorder, in_the_home: Sunspot
    ):
        import ray

        @ray.remote
        def double(n: int) -> int:
            return 2 * n

        kill_node(in_the_home.folder("body"), "workers-0")
        told = wait_for(
            "a message about the loss",
            lambda: [
                (state, message)
                for state, message in zip(recorder.states, recorder.messages, strict=True)
                if "workers-0" in message and "Lost" in message
            ],
        )
        assert told[0][0] is S.ACTIVE
        assert sum(ray.get([double.remote(n) for n in range(10)], timeout=300)) == 90
        assert body.state is S.ACTIVE


def test_an_exception_in_the_body_comes_out_as_it_is_and_nothing_stays(in_the_home: Sunspot):
    import ray

    recorder, error = Recorder(), RuntimeError("of the body")
    initialized: list[bool] = []

    def use_a_cluster() -> None:
        with a_head("raises", recorder, forward_logs=False):
            initialized.append(ray.is_initialized())
            raise error

    with pytest.raises(RuntimeError) as caught:
        use_a_cluster()
    assert caught.value is error
    assert initialized == [True]
    assert not ray.is_initialized()
    assert recorder.steps() == [S.ACTIVATING, S.ACTIVE, S.DEACTIVATING, S.DEACTIVATED]
    assert what_is_left(in_the_home.folder("raises")) == []


def test_ctrl_c_in_the_body_takes_the_cluster_away(in_the_home: Sunspot):
    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt), a_head("interrupted", recorder, forward_logs=False):
        signal.raise_signal(signal.SIGINT)
    assert recorder.states[-1] is S.DEACTIVATED
    assert what_is_left(in_the_home.folder("interrupted")) == []


@pytest.mark.parametrize("step", ["Starting Ray cluster", "GCS answers", "ready"])
def test_ctrl_c_during_activation_takes_away_what_has_begun(in_the_home: Sunspot, step: str):
    import ray

    class Interrupter(Recorder):
        def __call__(self, state: ResourceState, message: str) -> None:
            super().__call__(state, message)
            if state is S.ACTIVATING and message.startswith(step):
                signal.raise_signal(signal.SIGINT)

    recorder = Interrupter()
    with pytest.raises(KeyboardInterrupt), a_head("early", recorder):
        pytest.fail("the body must not run")
    assert S.ACTIVE not in recorder.states
    assert not ray.is_initialized()
    assert what_is_left(in_the_home.folder("early")) == []


def test_an_activation_that_takes_too_long_fails_with_its_last_step(in_the_home: Sunspot):
    recorder = Recorder()
    cluster = a_head("slow", recorder, activation_timeout_seconds=0.01)
    with pytest.raises(ExternalResourceError, match="the last step was"), cluster:
        pytest.fail("the body must not run")
    assert recorder.steps() == [S.ACTIVATING, S.DEACTIVATING, S.DEACTIVATED]
    assert what_is_left(in_the_home.folder("slow")) == []

    with pytest.raises(IllegalStateTransitionError, match="make a new RayCluster"), cluster:
        pytest.fail("a RayCluster is for one block")


def test_ray_that_is_initialised_already_is_refused_and_left_alone(
    in_the_home: Sunspot, monkeypatch: pytest.MonkeyPatch
):
    import ray

    recorder, calls = Recorder(), []
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "shutdown", lambda *_: calls.append("shutdown"))
    cluster = a_head("refused", recorder)
    with pytest.raises(SunspotError, match=r"ray\.shutdown\(\)"), cluster:
        pytest.fail("the body must not run")
    assert calls == []
    assert recorder.states == []
    assert cluster.state is S.CREATED
    assert what_is_left(in_the_home.folder("refused")) == []
