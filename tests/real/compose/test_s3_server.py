"""The object store as its service starts it, with AWS's own client; it needs no engine for that."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from botocore.exceptions import ClientError
from compose_engine import S3_SERVER, need_built
from machines.needs import SYSTEM_PATH
from machines.processes import server
from machines.registry import free_port

from sunspot.targets.compose import ray_nodes, secret_files, services

BUCKET = ray_nodes.BUCKET


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The secrets and files of the service."""
    need_built(S3_SERVER)
    made = tmp_path_factory.mktemp("s3")
    (made / "files").mkdir()
    secret_files.create(made)
    return made


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """Where it serves: by the service's own script, with other paths and another port."""
    port = free_port("127.0.0.1")
    script = services.SERVE_S3.replace(services.S3_FILES[1], str(folder / "files"))
    script = script.replace(secret_files.MOUNT, str(folder))
    script = script.replace(f":{ray_nodes.S3_PORT}", f"127.0.0.1:{port}")
    address = f"http://127.0.0.1:{port}"
    env = {
        "PATH": f"{S3_SERVER.parent}:{SYSTEM_PATH}",
        "ROOT_ACCESS_KEY_ID": secret_files.S3_ACCESS_KEY,
    }

    def ready() -> bool:
        try:
            return requests.get(f"{address}/health", timeout=5).ok
        except requests.ConnectionError:
            return False

    with server(["/bin/sh", "-c", script], folder / "log", ready=ready, env=env):
        yield address


def client(url: str, monkeypatch: pytest.MonkeyPatch, **variables: str) -> Any:
    """AWS's client with these variables, and no other of AWS's."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url, **variables}.items():
        monkeypatch.setenv(name, value)
    return boto3.Session(region_name="us-east-1").client("s3")


def test_the_nodes_credentials_open_the_bucket(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = str(folder / secret_files.S3_CREDENTIALS)
    s3 = client(url, monkeypatch, AWS_SHARED_CREDENTIALS_FILE=credentials)
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == [BUCKET]
    s3.put_object(Bucket=BUCKET, Key="runs/one/checkpoint", Body=b"weights")
    assert s3.get_object(Bucket=BUCKET, Key="runs/one/checkpoint")["Body"].read() == b"weights"
    # The checkpoints are plain files in the volume.
    assert (folder / "files" / BUCKET / "runs/one/checkpoint").read_bytes() == b"weights"


@pytest.mark.parametrize("access_key", ["somebody", secret_files.S3_ACCESS_KEY])
def test_no_other_key_does(url: str, monkeypatch: pytest.MonkeyPatch, access_key: str) -> None:
    wrong = {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": "wrong"}
    with pytest.raises(ClientError) as refused:
        client(url, monkeypatch, **wrong).list_objects_v2(Bucket=BUCKET)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] in (401, 403, 404)
    assert requests.get(f"{url}/{BUCKET}/runs/one/checkpoint", timeout=30).status_code == 403
