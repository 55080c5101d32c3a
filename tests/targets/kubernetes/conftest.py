"""A Kubernetes of the tests' own, a head behind it, and a project with a stack."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import job_api
import pytest
from cli_runs import run
from job_api import Api as JobApi
from kubernetes_api import KubernetesApi
from kubernetes_objects import member, pod
from kubernetes_server import served, write_kubeconfig
from kubernetes_stacks import FILE

from sunspot.targets.kubernetes import job_clusters, removing, scaling, starting, way_in
from sunspot.targets.tunnel import Tunnel

# Instead of half a second: nothing here takes that long.
POLL_S = 0.05


@dataclass(frozen=True)
class Kubernetes:
    """The API, the job API of each head, the project's folder and the kubeconfig."""

    api: KubernetesApi
    jobs: JobApi
    project: Path
    kubeconfig: Path

    def write(self, text: str, name: str = "mine") -> None:
        (self.project / f"Pulumi.{name}.yaml").write_text(text)


@pytest.fixture
def port_forward():
    """Asked for by tests of the way in; for others no process leads to the head."""


@pytest.fixture
def kubernetes(tmp_path, monkeypatch, request):
    """The stack "mine" can be brought up in it: pods run at once, and are members."""
    (tmp_path / "Pulumi.yaml").write_text("name: sunspot\nruntime: python\n")
    (tmp_path / "Pulumi.mine.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUNSPOT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "400")
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    for module in (removing, scaling, starting):
        monkeypatch.setattr(module, "POLL_S", POLL_S)
    monkeypatch.setattr(starting, "REFUSALS_POLL_S", POLL_S)
    monkeypatch.setattr(job_clusters, "SEEN_POLL_S", POLL_S)
    monkeypatch.setattr(starting.secrets, "token_hex", lambda _bytes: job_api.TOKEN)
    api = KubernetesApi()
    with job_api.serving() as (jobs, head_port), served(api) as port:
        write_kubeconfig(kubeconfig, port)
        api.head_ports = {8265: head_port}
        if "port_forward" not in request.fixturenames:
            there = way_in.Addresses(dashboard=f"127.0.0.1:{head_port}", client="127.0.0.1:1")
            monkeypatch.setattr(way_in, "of", lambda *_: there)

        def make_pods(cluster):
            made = pods_of(cluster)
            jobs.nodes = [member(one) for one in made]
            return made

        api.make_pods = make_pods
        yield Kubernetes(api, jobs, tmp_path, kubeconfig)
        # A test that fails, or takes nothing down, leaves no process.
        for folder in (tmp_path / "state" / "kubernetes").glob("[!.]*/"):
            Tunnel(folder).close()


@pytest.fixture
def up(kubernetes):
    """The stack "mine" is up."""
    done = run("up", "mine")
    assert done.exit_code == 0, done.output
    yield done
    run("down", "mine")


@pytest.fixture
def write(kubernetes):
    """Writes the stack file with these settings of the volume; there is a default class."""
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    kubernetes.api.add(
        "/apis/storage.k8s.io/v1/storageclasses/fast",
        {"metadata": {"name": "fast", "annotations": default}},
    )

    def change(**asked):
        block = json.dumps({"gcs_fault_tolerance": asked})
        kubernetes.write(f"{FILE}  sunspot:kubernetes: {block}\n")

    yield change
    run("down", "mine")


def pods_of(cluster):
    """The pods that KubeRay makes of a RayCluster, all of which run."""
    name, spec = cluster["metadata"]["name"], cluster["spec"]
    made = [pod(name, "head", f"{name}-head-1")]
    for group in spec["workerGroupSpecs"]:
        # As KubeRay does (GetWorkerGroupDesiredReplicas, 1.6).
        count = min(max(group.get("replicas", 0), group["minReplicas"]), group["maxReplicas"])
        kind = group["groupName"]
        made += [pod(name, kind, f"{name}-{kind}-{at}") for at in range(count)]
    return made
