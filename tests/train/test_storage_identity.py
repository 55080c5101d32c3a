"""Azure Blob by managed identity: each machine is known to its own metadata service only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import servers
from harness import Sunspot
from test_storage import WORKLOADS
from training import DEADLINE_S, FROM_HERE, TINY, Training

HEAD, WORKER = "client-id-of-the-head", "client-id-of-the-workers"

# As Ray sends it: by value, since the workers lack the workloads' files.
SEND = """
import sys, _storage
from ray import cloudpickle
cloudpickle.register_pickle_by_value(_storage)
storage = _storage.open_storage({url!r})
marker = _storage.check_writable(storage)
sys.stdout.buffer.write(cloudpickle.dumps((_storage.check_writable, storage, marker)))
"""
# Ray Train's controller: it lacks the files too.
PASS_ON = """
import sys
from ray import cloudpickle
sent = cloudpickle.loads(sys.stdin.buffer.read())
sys.stdout.buffer.write(cloudpickle.dumps(sent))
"""
USE = """
import sys
from ray import cloudpickle
check_writable, storage, marker = cloudpickle.loads(sys.stdin.buffer.read())
check_writable(storage, marker)
print(storage.read(marker).decode().split()[0])
"""


def run(code: str, found: dict[str, str], sent: bytes = b"", path: str = "") -> bytes:
    """What a process of some machine writes."""
    steering = ("AWS_", "AZURE_", "SUNSPOT", "PYTHONPATH")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(steering)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean | found | {"PYTHONPATH": path},
        input=sent,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_a_worker_opens_what_the_head_sends_as_itself(tmp_path: Path):
    with (
        servers.azure_blob_with_tokens(tmp_path) as (url, trust),
        servers.machine(HEAD) as (heads, on_head),
        servers.machine(WORKER) as (workers, on_worker),
    ):
        sent = run(SEND.format(url=url), on_head | trust, path=str(WORKLOADS))
        passed_on = run(PASS_ON, on_worker | trust, sent)
        assert run(USE, on_worker | trust, passed_on) == b"written\n"
    assert {asked.fields["client_id"] for asked in heads.requests} == {HEAD}
    assert {asked.fields["client_id"] for asked in workers.requests} == {WORKER}


# What AKS's webhook adds to a pod (azure.github.io/azure-workload-identity, "Mutating Admission
# Webhook").
IN_A_POD = {
    "AZURE_CLIENT_ID": WORKER,
    "AZURE_TENANT_ID": "tenant",
    "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
    "AZURE_FEDERATED_TOKEN_FILE": "/var/run/secrets/azure/tokens/azure-identity-token",
}


@pytest.mark.parametrize(
    ("found", "asked"), [(IN_A_POD, ""), ({"AZURE_CLIENT_ID": WORKER}, WORKER)]
)
def test_only_a_machine_asks_its_metadata_service(found: dict[str, str], asked: str):
    code = """
import _storage
from pyarrow import fs
opened = _storage.open_storage("abfss://results@acct.dfs.core.windows.net/a").filesystem
print(fs.AzureFileSystem.__reduce__(opened)[1][0]["client_id"])
"""
    assert run(code, found, path=str(WORKLOADS)).decode().strip() == asked


def test_a_training_is_stored_by_machines_that_the_driver_is_not_on(
    sunspot: Sunspot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sunspot.write_stack("other", {"head_node": {"cpu": 2, "memory_gb": 4}})
    command = ["python", "workloads/train.py", *TINY, "--epochs", "1"]
    command += ["--data", str(Training(sunspot=sunspot, folder=tmp_path).data())]
    (tmp_path / "blobs").mkdir()
    with (
        servers.azure_blob_with_tokens(tmp_path / "blobs") as (url, trust),
        servers.machine(HEAD) as (heads, on_head),
        servers.machine(WORKER) as (workers, on_worker),
    ):
        for name, value in (on_worker | trust).items():
            monkeypatch.setenv(name, value)
        try:
            up = sunspot("up", "other", timeout=DEADLINE_S)
            assert up.returncode == 0, up.stderr
            # Only the driver is on the head: a variable of the job's would reach its workers too.
            driver = ["env", *(f"{name}={value}" for name, value in on_head.items()), *command]
            submit = ("submit", "--stack", "other", *FROM_HERE, "--", *driver, "--storage", url)
            done = sunspot(*submit, timeout=DEADLINE_S)
            assert done.returncode == 0, done.stdout + done.stderr
        finally:
            sunspot("down", "other")
    assert {asked.fields["client_id"] for asked in heads.requests} == {HEAD}
    assert {asked.fields["client_id"] for asked in workers.requests} == {WORKER}


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("acct.dfs.core.windows.net", "core.windows.net"),
        ("acct.blob.core.windows.net", "core.windows.net"),
        ("acct.dfs.core.usgovcloudapi.net", "core.usgovcloudapi.net"),
        ("acct", "core.windows.net"),
    ],
)
def test_the_address_names_the_cloud(host: str, domain: str):
    code = f"""
import _storage
from pyarrow import fs
opened = _storage.open_storage("abfss://results@{host}/a").filesystem
options = fs.AzureFileSystem.__reduce__(opened)[1][0]
print(*(options[name + "_storage_authority"] for name in ("blob", "dfs")))
"""
    printed = run(code, {}, path=str(WORKLOADS)).decode().split()
    assert printed == [f".blob.{domain}", f".dfs.{domain}"]


@pytest.mark.parametrize("host", ["acct.dfs.example.net", "acct.dfs.core.windows.net.example.net",
                                  "acct.com", "acct.dfs."])  # fmt: skip
def test_no_other_server_gets_the_machines_token(host: str):
    code = f"""
import _storage
try:
    _storage.open_storage("abfss://results@{host}/a")
except _storage.StorageError as error:
    print(error)
"""
    assert host in run(code, {}, path=str(WORKLOADS)).decode()
