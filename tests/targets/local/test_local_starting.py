"""Waiting for the launcher of a local cluster's nodes."""

import os
import subprocess
from types import SimpleNamespace
from typing import cast

import pytest

from sunspot.errors import SunspotError
from sunspot.node.local.folder import ClusterFolder
from sunspot.targets.local import capacity, starting


@pytest.mark.parametrize(
    ("printed", "step"),
    [(b"", "starting the launcher"), (b'{"event": "node", "name": "w-0"}\n', "node w-0")],
)
def test_a_timeout_names_the_step_that_it_was_in(printed, step):
    output, launcher = os.pipe()
    with os.fdopen(output, "rb") as stdout, os.fdopen(launcher, "wb", 0) as events:
        events.write(printed)
        process = cast("subprocess.Popen[bytes]", SimpleNamespace(stdout=stdout))
        with pytest.raises(SunspotError, match=f"the last step was: {step}$"):
            list(starting._events(process, 0.01))


def test_the_last_other_cluster_may_remove_the_folder_of_all_meanwhile(tmp_path, monkeypatch):
    folder, parent = ClusterFolder(tmp_path / "clusters" / "dev"), tmp_path / "sockets"
    monkeypatch.setattr(ClusterFolder, "temp_dir", parent / "x")
    removed = iter([parent.rmdir])
    monkeypatch.setattr(capacity, "check_temp_folder", lambda _: next(removed, str)())
    starting.make_temp_dir(folder)
    assert [path.stat().st_mode & 0o777 for path in (parent, parent / "x")] == [0o700, 0o700]
