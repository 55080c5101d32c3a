"""Keeps the files of Serve's applications on the cluster for as long as they are deployed.

Ray deletes an uploaded folder when no job and no actor uses it any more. So when all replicas are
gone at once, evicted together or scaled to none, no new one could start (seen with 2.60). A job
that does nothing uses the folder, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sunspot.errors import SunspotError
from sunspot.ray.feasibility import Request
from sunspot.ray.jobs import JobClient

PREFIX = "serve-files-"
_UPLOADED = "gcs://_ray_pkg_"
_COMMAND = ("sleep", "infinity")
_DIGITS = 12  # of a folder's hash


def keep(client: JobClient, config: Mapping[str, Any]) -> list[str]:
    """Starts a job for each folder of the config that no job keeps yet; returns their ids."""
    kept = {name for name, _ in _running(client)}
    started: list[str] = []
    for uri in _uploaded(config):
        if (name := _name(uri)) not in kept:
            started.append(f"{name}-{secrets.token_hex(3)}")
            client.submit(
                _COMMAND,
                request=Request(),
                runtime_env={"working_dir": uri},
                job_id=started[-1],
            )
    return started


def release(client: JobClient, config: Mapping[str, Any], note: Callable[[str], None]) -> None:
    """Stops the jobs that keep folders that this config, which runs now, does not have."""
    wanted = {_name(uri) for uri in _uploaded(config)}
    stop(client, [job_id for name, job_id in _running(client) if name not in wanted], note)


def stop(client: JobClient, jobs: Iterable[str], note: Callable[[str], None]) -> None:
    """Stops jobs that keep folders; of one that cannot be stopped, `note` gets how to do it."""
    for job_id in jobs:
        try:
            client.stop(job_id)
        except SunspotError as error:
            note(f"the job {job_id} keeps files that nobody needs: {error}. sunspot stop {job_id}")


def _running(client: JobClient) -> list[tuple[str, str]]:
    """What each job that keeps a folder is called for it, and its id."""
    return [
        (job.id.rpartition("-")[0], job.id)
        for job in client.list()
        if job.id.startswith(PREFIX) and not job.has_ended
    ]


def _uploaded(config: Mapping[str, Any]) -> set[str]:
    folders = {app["runtime_env"].get("working_dir", "") for app in config["applications"]}
    return {uri for uri in folders if uri.startswith(_UPLOADED)}


def _name(uri: str) -> str:
    return PREFIX + uri.removeprefix(_UPLOADED)[:_DIGITS]
