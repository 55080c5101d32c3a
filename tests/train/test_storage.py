"""Storage addresses become filesystems, and what cannot be written is told before training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import servers

WORKLOADS = Path(__file__).resolve().parents[2] / "workloads"


def evaluate(code: str, env: dict[str, str] | None = None) -> str:
    """What a program prints that has the workloads' modules on its path."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE_", "SUNSPOT"))}
    done = subprocess.run(
        [sys.executable, "-c", f"import _storage\n{code}"],
        env=clean | {"PYTHONPATH": str(WORKLOADS)} | (env or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


MAKES = "storage.filesystem.create_dir(storage.path.split('/')[0])"
WRITES = f"""
storage = _storage.open_storage({{url!r}})
{MAKES}
name = _storage.check_writable(storage)
_storage.check_writable(storage, name)
print(storage.read(name).decode().split()[0], storage.path)
_storage.remove(storage, name)
print(storage.filesystem.get_file_info(storage.below(name)).type.name)
"""


@pytest.mark.parametrize("url", ["abfs://results@devstoreaccount1.dfs.core.windows.net/a/b",
                                 "abfss://results@devstoreaccount1.dfs.core.windows.net/a/b",
                                 "az://results/a/b"])  # fmt: skip
def test_azure_blob_is_written_and_read(url: str, tmp_path: Path):
    with servers.azure_blob(tmp_path) as env:
        assert evaluate(WRITES.format(url=url), env).split() == [
            "written",
            "results/a/b",
            "NotFound",
        ]


def test_s3_is_written_and_read():
    with servers.s3() as env:
        servers.make_bucket(env, "bucket")
        printed = evaluate(WRITES.format(url="s3://bucket/a/b").replace(MAKES, ""), env)
    assert printed.split() == ["written", "bucket/a/b", "NotFound"]


def test_a_folder_is_written_and_read(tmp_path: Path):
    printed = evaluate(WRITES.format(url=str(tmp_path / "a")).replace(MAKES, ""))
    assert printed.split()[0] == "written"


def test_on_a_node_azure_is_opened_with_its_identity_and_no_key():
    code = """
import pyarrow.fs as fs
opened = _storage.open_storage("abfss://results@acct.dfs.core.windows.net/").filesystem
options = fs.AzureFileSystem.__reduce__(opened)[1][0]
print({name: value for name, value in options.items() if value and "storage" not in name})
"""
    told = evaluate(code, {"AZURE_CLIENT_ID": "some-id"})
    assert told == "{'account_name': 'acct', 'client_id': 'some-id'}"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("gs://bucket/x", "gs:// is not a storage"),
        ("s3:///x", "s3:///x"),
        ("az://container/x", "AZURE_STORAGE_ACCOUNT"),
    ],
)
def test_an_address_that_means_nothing_is_refused(url: str, told: str):
    code = f"""
try: _storage.open_storage({url!r})
except _storage.StorageError as error: print(error)
"""
    assert told in evaluate(code)


def test_the_stacks_storage_is_the_default():
    code = "print(_storage.default_url())"
    assert evaluate(code, {"SUNSPOT_STORAGE": "abfss://a@b/"}) == "abfss://a@b/"
    assert evaluate(code).endswith("/ray_results")
