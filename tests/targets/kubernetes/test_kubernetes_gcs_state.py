"""The volume by which a cluster outlives its head's pod: in the manifest, and as `up` makes it."""

from __future__ import annotations

import json
import shlex
from types import SimpleNamespace

import pytest
from cli_runs import failed, run
from kubernetes_objects import member, pod
from kubernetes_stacks import (
    cluster,
    documents,
    group,
    head_pod,
    stack,
    variables,
    worker_pod,
)

from sunspot import stack as stacks
from sunspot.errors import SunspotError
from sunspot.targets.kubernetes import manifest, members, raycluster, rayjob, rayservice
from sunspot.targets.kubernetes.objects import Pod
from sunspot.targets.kubernetes.target import create

CLAIM = "mine-gcs-pvc"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def kept(**asked):
    return stack(group(), gcs_fault_tolerance=asked)


# In the manifest


def test_the_heads_ray_keeps_its_state_on_the_volume_and_jobs_know_nothing_of_it():
    made = cluster(group(), gcs_fault_tolerance={})
    head, worker = head_pod(made), worker_pod(made)
    (volume,) = (one for one in head["volumes"] if "persistentVolumeClaim" in one)
    assert volume["persistentVolumeClaim"] == {"claimName": "course-gcs-pvc"}
    (mount,) = (m for m in head["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
    # KubeRay hands the flags to a shell.
    flag = made["spec"]["headGroupSpec"]["rayStartParams"]["system-config"]
    (given,) = shlex.split(flag)
    # Of this cluster and version of Ray: nothing says that another one reads it.
    folder = f"{mount['mountPath']}/course-2.60.0"
    assert json.loads(given) == {"gcs_storage": "rocksdb", "gcs_storage_path": folder}
    assert not [name for name in variables(head) if "gcs_storage" in name]
    # Ray's own images do not run as root.
    assert head["securityContext"]["fsGroup"]
    # The workers wait for a new head, and have no volume.
    assert variables(worker)["RAY_gcs_rpc_server_reconnect_timeout_s"] == "600"
    assert not [one for one in worker["volumes"] if "persistentVolumeClaim" in one]
    assert "system-config" not in made["spec"]["workerGroupSpecs"][0]["rayStartParams"]
    # No KubeRay has to know of it.
    assert "gcsFaultToleranceOptions" not in made["spec"]


def test_without_it_there_is_no_volume_and_workers_do_not_wait():
    made = cluster(group())
    assert "securityContext" not in head_pod(made)
    assert "system-config" not in made["spec"]["headGroupSpec"]["rayStartParams"]
    assert "RAY_gcs_rpc_server_reconnect_timeout_s" not in variables(worker_pod(made))
    assert "PersistentVolumeClaim" not in [one["kind"] for one in documents(stack(group()))]


@pytest.mark.parametrize(
    ("asked", "spec"),
    [
        ({}, {"size": "10Gi"}),
        (
            {"size": "20Gi", "storage_class": "managed-csi"},
            {"size": "20Gi", "class": "managed-csi"},
        ),
    ],
)
def test_the_claim_is_part_of_the_manifest(asked, spec):
    (claim,) = (one for one in documents(kept(**asked)) if one["kind"] == "PersistentVolumeClaim")
    assert claim["metadata"]["name"] == "course-gcs-pvc"
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]
    assert claim["spec"]["resources"]["requests"]["storage"] == spec["size"]
    assert claim["spec"].get("storageClassName") == spec.get("class")


def test_a_claim_of_the_users_is_used_and_not_made():
    made = documents(kept(claim="theirs"))
    assert [one["kind"] for one in made] == ["RayCluster", "PodDisruptionBudget"]
    assert {"claimName": "theirs"} in [
        one.get("persistentVolumeClaim") for one in head_pod(made[0])["volumes"]
    ]


def test_a_manifest_whose_volume_is_kept_says_how():
    assert "kubectl delete --namespace default raycluster/course pdb/course-head" in manifest.text(
        kept(keep=True)
    )
    assert "pdb/" not in manifest.text(kept())


def test_where_kuberay_makes_the_cluster_the_volume_is_kuberays():
    described = kept(size="20Gi", storage_class="managed-csi", keep=True)
    (service,) = rayservice.make(described, "main:app")
    (job,) = rayjob.make(described, ["true"])
    for spec in (service["spec"]["rayClusterConfig"], job["spec"]["rayClusterSpec"]):
        assert spec["gcsFaultToleranceOptions"] == {
            "backend": "rocksdb",
            "storage": {
                "size": "20Gi",
                "storageClassName": "managed-csi",
                "deletionPolicy": "Retain",
            },
        }
        assert raycluster.oldest_kuberay(spec) == (1, 7)
        # KubeRay 1.7 refuses what it sets itself (validation.go), and sets no group.
        pod = spec["headGroupSpec"]["template"]["spec"]
        assert not [one for one in pod["volumes"] if "persistentVolumeClaim" in one]
        assert "system-config" not in spec["headGroupSpec"]["rayStartParams"]
        assert pod["securityContext"]["fsGroup"]


def test_the_groups_of_the_users_patch_hold():
    context = {"fsGroup": 2000}
    for settings in (
        {"patch": {"spec": {"securityContext": context}}},
        {"groups": {"head": {"patch": {"spec": {"securityContext": context}}}}},
    ):
        made = head_pod(cluster(group(), gcs_fault_tolerance={}, **settings))
        policy = {"fsGroupChangePolicy": "OnRootMismatch"}
        assert made["securityContext"] == {**context, **policy}
    always = {"spec": {"securityContext": {"fsGroupChangePolicy": "Always"}}}
    made = head_pod(cluster(group(), gcs_fault_tolerance={}, patch=always))
    assert made["securityContext"] == {"fsGroup": 100, "fsGroupChangePolicy": "Always"}


# As `up` makes it


def test_an_old_annotation_makes_a_default_class_too(kubernetes, write):
    write()
    found = kubernetes.api.objects[f"{CLASSES}/fast"]["metadata"]
    found["annotations"] = {"storageclass.beta.kubernetes.io/is-default-class": "true"}
    assert run("up", "mine").exit_code == 0


def has_claims(kubernetes):
    return kubernetes.api.names("persistentvolumeclaims")


def test_the_volume_goes_with_the_cluster_whoever_deletes_it(kubernetes, write):
    write()
    assert run("up", "mine").exit_code == 0
    (owner,) = kubernetes.api.one("persistentvolumeclaims")["metadata"]["ownerReferences"]
    assert owner["uid"] == kubernetes.api.one("rayclusters")["metadata"]["uid"]
    assert run("down", "mine").exit_code == 0
    assert has_claims(kubernetes) == []


def test_a_volume_that_is_kept_is_the_next_clusters(kubernetes, write):
    write(keep=True)
    for _ in range(2):
        done = run("up", "mine")
        assert done.exit_code == 0, done.output
        said = run("down", "mine").stdout
        assert "mine is down" in said
        assert f"kept: claim {CLAIM} (delete it: kubectl delete pvc {CLAIM} --namespace" in said
        assert has_claims(kubernetes) == [CLAIM]
    # Whoever does not ask for it gets no old state.
    write()
    said = failed(2, "up", "mine")
    assert f"has a claim {CLAIM} already, with the state of an earlier cluster" in said
    assert "keep: true" in said
    assert f"kubectl delete pvc {CLAIM} --namespace default" in said
    assert kubernetes.api.names("rayclusters") == []


def test_a_claim_of_somebody_elses_is_not_taken(kubernetes, write):
    kubernetes.api.add(f"{CLAIMS}/{CLAIM}", {"metadata": {"name": CLAIM}})
    write(keep=True)
    said = failed(2, "up", "mine")
    assert f"claim: {CLAIM}" in said
    # It reads nothing that KubeRay's backend, say, has written there.
    assert "a folder of this cluster's own" in said
    assert "go on with that state" not in said
    write(claim=CLAIM)
    assert run("up", "mine").exit_code == 0
    assert run("down", "mine").exit_code == 0
    assert has_claims(kubernetes) == [CLAIM]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"claim": "gone"}, ("no PersistentVolumeClaim 'gone'", "leave out")),
        ({"storage_class": "slow"}, ("no storage class 'slow'; it has fast", "storage_class")),
    ],
)
def test_what_is_not_there_is_refused_before_anything_is_created(kubernetes, write, asked, said):
    write(**asked)
    text = failed(2, "up", "mine")
    for part in said:
        assert part in text
    assert kubernetes.api.names("rayclusters") == []


def test_a_kubernetes_without_a_default_storage_class(kubernetes, write):
    write()
    del kubernetes.api.objects[f"{CLASSES}/fast"]
    assert "no default storage class; it has none" in failed(2, "up", "mine")
    # Usually only administrators see the classes: then nothing is said.
    kubernetes.api.forbidden = {("list", "storageclasses")}
    assert run("up", "mine").exit_code == 0


def test_a_claim_that_is_still_being_deleted(kubernetes, write):
    metadata = {"name": CLAIM, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    kubernetes.api.add(f"{CLAIMS}/{CLAIM}", {"metadata": metadata})
    write(keep=True)
    assert "is being deleted" in failed(2, "up", "mine")
    kubernetes.api.objects.pop(f"{CLAIMS}/{CLAIM}")


@pytest.mark.parametrize("record", ["broken", "none"])
def test_down_keeps_a_claim_whatever_the_file_says_now(kubernetes, write, monkeypatch, record):
    write(keep=True)
    assert run("up", "mine").exit_code == 0
    write()
    with monkeypatch.context() as elsewhere:
        if record == "none":
            elsewhere.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
        else:
            (kubernetes.project / "state" / "kubernetes" / "mine" / "place.json").write_text("{")
        assert f"kept: claim {CLAIM}" in run("down", "mine").stdout
    assert has_claims(kubernetes) == [CLAIM]


def test_down_leaves_the_volume_of_another_machines_cluster(kubernetes, write, monkeypatch):
    write()
    assert run("up", "mine").exit_code == 0
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SUNSPOT_STATE_DIR", str(kubernetes.project / "other"))
        assert run("down", "mine").exit_code == 0
        assert run("up", "mine").exit_code == 0
    done = run("down", "mine")
    assert done.exit_code == 0, done.output
    assert "'mine' of another command" in " ".join(done.output.split())
    assert has_claims(kubernetes) == [CLAIM]
    assert run("down", "mine").exit_code == 0
    assert has_claims(kubernetes) == []


def test_a_claim_that_the_cluster_does_not_own_stays(kubernetes, write):
    write()
    assert run("up", "mine").exit_code == 0
    del kubernetes.api.one("persistentvolumeclaims")["metadata"]["ownerReferences"]
    assert f"kept: claim {CLAIM}" in run("down", "mine").stdout
    assert has_claims(kubernetes) == [CLAIM]


def test_an_up_that_fails_names_the_claim_that_stays(kubernetes, write):
    write(keep=True)
    broken = {"reason": "ErrImagePull", "message": "ray:moon: not found"}
    kubernetes.api.make_pods = lambda _: [pod("mine", "head", "mine-head-1", waiting=broken)]
    said = failed(2, "up", "mine")
    assert f"kept: claim {CLAIM}" in said
    assert has_claims(kubernetes) == [CLAIM]


def told():
    """What the checks say of the volume: the level, and the detail."""
    found = create().preconditions(stacks.load("mine"), print)
    return [(one.level, one.detail) for one in found if one.check == "volume"]


def test_a_kept_claim_that_is_not_as_asked_is_told(kubernetes, write):
    write(keep=True, size="10240Mi", storage_class="fast")
    spec = {"resources": {"requests": {"storage": "10Gi"}}, "storageClassName": "fast"}
    metadata = {"name": CLAIM, "labels": raycluster.MANAGED_BY}
    kubernetes.api.add(f"{CLAIMS}/{CLAIM}", {"metadata": metadata, "spec": spec})
    assert told() == [("ok", f"claim {CLAIM}")]
    write(keep=True)
    assert told() == [("ok", f"claim {CLAIM}")]
    write(keep=True, size="20Gi", storage_class="slow")
    ((level, detail),) = told()
    assert level == "warning"
    assert "its size is 10Gi, not 20Gi, its storage class is fast, not slow" in detail


def test_a_storage_class_that_retains_disks_is_told(kubernetes, write):
    write()
    assert told() == []
    kubernetes.api.objects[f"{CLASSES}/fast"]["reclaimPolicy"] = "Retain"
    ((level, detail),) = told()
    assert (level, "storage class fast has reclaimPolicy Retain" in detail) == ("warning", True)


def test_down_names_a_claim_that_does_not_go(kubernetes, write, monkeypatch):
    monkeypatch.setattr("sunspot.targets.kubernetes.removing.CLAIM_PATIENCE_S", 0.1)
    write()
    assert run("up", "mine").exit_code == 0
    # As of Kubernetes while a pod has it.
    metadata = kubernetes.api.one("persistentvolumeclaims")["metadata"]
    metadata["finalizers"] = ["kubernetes.io/pvc-protection"]
    assert f"PersistentVolumeClaim {CLAIM}" in failed(1, "down", "mine")
    kubernetes.api.objects.pop(f"{CLAIMS}/{CLAIM}")
    assert "mine is down" in run("down", "mine").stdout


# Whose nodes are members


def test_up_does_not_take_the_nodes_of_an_old_cluster_for_its_own(kubernetes, write):
    """As RocksDB has them: alive, until Ray has asked each."""
    write(keep=True)
    make_pods = kubernetes.api.make_pods

    def make(cluster):
        made = make_pods(cluster)
        old = {one["node_name"]: dict(one) for one in kubernetes.jobs.nodes}
        old["head"]["node_ip"] = "10.0.0.9"
        old["mine-workers-0"]["node_name"] = "mine-workers-of-old"
        kubernetes.jobs.nodes = list(old.values())
        return made

    kubernetes.api.make_pods = make
    with pytest.raises(SunspotError, match="the head has not joined its own cluster"):
        create().up(stacks.load("mine").for_target("kubernetes"), print, timeout_s=1)


@pytest.mark.parametrize(
    ("workers", "named", "address", "counts"),
    [
        ({}, "w-1", "10.0.0.2", True),
        # Of a pod that is gone, whose address a new one has.
        ({}, "w-0", "10.0.0.2", False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "w-1", "10.0.0.2", False),
        # A patch may change the host name, which Ray has for its name.
        ({"hostNetwork": True}, "vm-1", "10.0.0.2", True),
        ({"hostNetwork": True}, "vm-1", "10.0.0.3", False),
    ],
)
def test_a_worker_counts_while_its_pod_is_there(monkeypatch, workers, named, address, counts):
    head, worker = pod("course", "head", "h"), pod("course", "workers", "w-1", address="10.0.0.2")
    for key, value in workers.items():
        worker["spec" if key == "hostNetwork" else "metadata"][key] = value
    alive = [member(head), {**member(worker), "node_name": named, "node_ip": address}]
    monkeypatch.setattr("sunspot.targets.members.alive", lambda _handle: alive)
    here = SimpleNamespace(pods=lambda: [Pod(head), Pod(worker)], found=lambda: None)
    lacks = members.missing(stack(group()), here, None)  # pyright: ignore[reportArgumentType]
    assert lacks == ("" if counts else "0 of 1 workers of workers joined")
    # Workers that wait for a new head are not all of a cluster.
    del alive[0]
    lacks = members.missing(stack(group()), here, None)  # pyright: ignore[reportArgumentType]
    assert lacks == "the head has not joined its own cluster yet"
