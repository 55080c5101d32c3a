"""Taking a cluster down: containers, networks and files, and volumes where that is asked."""

from __future__ import annotations

import contextlib

from sunspot.errors import SunspotError, UsageError
from sunspot.targets.compose import plan, services
from sunspot.targets.compose.engine import Engine, end_recorded
from sunspot.targets.compose.records import Records
from sunspot.targets.compose.settings import again
from sunspot.targets.protocol import Progress, Removal, silent
from sunspot.targets.records import BrokenRecordsError

LOOKED_FOR = "container, network or secret file"

# Workers lose nothing: their cluster ends with them.
STOP_TIMEOUT_S = 5

_CLUSTERS_OWN = services.RAY_FILES[0]
_VOLUMES = (
    _CLUSTERS_OWN,
    services.S3_FILES[0],
    services.PROMETHEUS_FILES[0],
    services.NOTEBOOKS[0],
)


def exists(records: Records, name: str, *, volumes: bool) -> bool:
    """Whether something of ours is there of a cluster without a record: containers, or volumes."""
    project = plan.project(name)
    try:
        engine = Engine.current()
        owners = {one.owner for one in engine.containers(project)}
        if volumes:
            owners |= set(engine.volumes(project).values())
    except SunspotError:  # most stacks of other targets have no engine at all
        return False
    return records.owner in owners


def refuse_foreign(records: Records, name: str, engine: Engine) -> None:
    """Checks that no other user or state directory has a cluster, or volumes, of that name.

    Raises:
        UsageError: there is one; the message names it.
    """
    project = plan.project(name)
    if any(one.owner != records.owner for one in engine.containers(project)):
        raise UsageError(
            f"another user, or another state directory, has a cluster {name!r} on this engine: see "
            f"docker ps --filter label=com.docker.compose.project={project}. Use another stack's "
            "name"
        )
    owners = engine.volumes(project)
    # Also those that somebody else than Compose made.
    wanted = [f"{project}_{volume}" for volume in _VOLUMES]
    labelled = {one["Name"] for one in engine.inspect(*wanted, kind="volume")}
    foreign = sorted(
        volume for volume in {*owners, *labelled} if owners.get(volume) != records.owner
    )
    if foreign:
        raise UsageError(
            f"the volumes {', '.join(foreign)} belong to another cluster. Keep them by using "
            f"another stack's name, or delete them: docker volume rm {' '.join(foreign)}"
        )


def take_down(records: Records, name: str, progress: Progress, *, volumes: bool) -> Removal:
    """Removes all of a cluster, and looks for what is left."""
    engine, project = _engine(records, name), plan.project(name)
    kept = remove(records, name, progress, volumes=volumes)
    ours = (one for one, owner in engine.volumes(project).items() if owner == records.owner)
    if remaining := sorted(ours):
        kept.append(
            f"The volumes {', '.join(remaining)} are kept, and the next `{again(name)}` uses "
            f"them again. Delete them: sunspot down {name} --volumes"
        )
    left = [*engine.left(project, records.owner), *map(str, _files(records, name))]
    remedy = f"See why with `docker ps --all`, then run again: sunspot down {name}"
    return Removal(looked_for=LOOKED_FOR, kept=kept, left=left, remedy=remedy if left else "")


def remove(records: Records, name: str, progress: Progress, *, volumes: bool = False) -> list[str]:
    """Removes containers, networks, the record and the secrets of a cluster.

    What another user or state directory has of that name stays.

    Returns:
        What is kept besides volumes, one sentence each.

    Raises:
        SunspotError: Docker failed; the record is kept then.
    """
    engine, project, folder = _engine(records, name), plan.project(name), records.folder(name)
    end_recorded(folder, progress)
    records.tunnel(name).close()
    if all(one.owner == records.owner for one in engine.containers(project)):
        engine.compose(
            project,
            *("down", "--remove-orphans", "--timeout", str(STOP_TIMEOUT_S)),
            folder=None,
            progress=progress,
        )
    wanted = _VOLUMES if volumes else (_CLUSTERS_OWN,)
    ours = [name for name, owner in engine.volumes(project).items() if owner == records.owner]
    for volume in (f"{project}_{one}" for one in wanted):
        if volume in ours:
            engine.read("volume", "rm", volume)
    kept = _edited(records, name)
    with records.tunnel(name).closed():  # another command may have opened it again
        records.folders.remove(name)
    return kept


def clean_up(records: Records, name: str, error: BaseException) -> None:
    """Removes what a failed `up` made; where that fails too, the error gets a note of it."""
    try:
        remove(records, name, silent)
    except SunspotError as second:
        error.add_note(f"what it started is still there ({second}): sunspot down {name}")


def _engine(records: Records, name: str) -> Engine:
    """The engine that the cluster runs on, or the current one where the record does not say."""
    with contextlib.suppress(BrokenRecordsError):
        if record := records.read(name):
            return Engine(record.engine)
    return Engine.current()


def _edited(records: Records, name: str) -> list[str]:
    """Keeps a file that was edited; a sentence that says so, in a list."""
    with contextlib.suppress(BrokenRecordsError):
        record = records.read(name)
        if record is not None and records.is_edited(name, record):
            kept = records.keep_edited(name)
            return [f"compose.yaml was edited by hand: it is kept as {kept}"]
    return []


def _files(records: Records, name: str) -> list[object]:
    folder = records.folder(name)
    return [folder] if folder.exists() else []
