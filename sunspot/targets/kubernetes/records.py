"""The records of clusters on Kubernetes: which place each is in, and its stack.

place.json     written before anything is created, so that `down` finds what a killed `up` left
cluster.json   the stack that it is made from
token          the cluster's token, mode 0600
"""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from sunspot.errors import UsageError
from sunspot.node.files import write_private
from sunspot.stack import Stack
from sunspot.targets.kubernetes import raycluster
from sunspot.targets.kubernetes.access import Place
from sunspot.targets.kubernetes.api import Api, Object
from sunspot.targets.kubernetes.errors import ApiError, UnreachableError
from sunspot.targets.kubernetes.objects import Cluster
from sunspot.targets.kubernetes.raycluster import Names
from sunspot.targets.protocol import Progress
from sunspot.targets.records import BrokenRecordsError, Folders, not_up
from sunspot.targets.tunnel import Tunnel

STACK_ANNOTATION = "sunspot/stack"
"""On what `up`, `run` or Pulumi made: the stack, for machines without a record of it."""
PULUMI_ANNOTATION = "sunspot/pulumi-stack"
"""On one that Pulumi made: the name of its stack."""

FILE, TOKEN_FILE, PLACE_FILE = "cluster.json", "token", "place.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One cluster.

    Attributes:
        place: the Kubernetes and the namespace.
        names: what it is called there.
        own_secret: whether the token's Secret goes with the cluster; another one is the user's.
        own_claim: the claim of the GCS's state, if it is not the user's. It goes with the cluster
            if that is its owner.
        by_pulumi: whether Pulumi made it, which then takes it down, too.
        job: its RayJob, where it is for one command; "" for any other cluster.
        uid: of what owns all the rest, the RayJob or else the RayCluster; "" until it is made.
    """

    place: Place
    names: Names
    own_secret: bool = True
    own_claim: str | None = None
    by_pulumi: bool = False
    job: str = ""
    uid: str = ""

    def cluster(self) -> Cluster:
        """Its objects."""
        return Cluster(_api(self.place, self.place.stamps()), self.names)

    def of_stack(self, stack: Stack) -> Record:
        """The record of a cluster that was made from this stack, whatever its file says now."""
        volume, given = raycluster.state_volume(stack), raycluster.settings(stack)
        named = self.job or self.names.cluster
        names = Names.of_cluster(named, self.names.namespace, given.token_secret)
        names = replace(names, cluster=self.names.cluster)
        claim = volume.claim if volume is not None and volume.is_own else None
        own_secret = given.token_secret is None
        return replace(self, names=names, own_secret=own_secret, own_claim=claim)


@functools.lru_cache(maxsize=8)
def _api(place: Place, stamps: tuple[int, ...]) -> Api:  # noqa: ARG001 - another file, another login
    """One login for each place: its command may take a second, and a watch asks every second."""
    return Api(place)


@dataclass(frozen=True)
class Records:
    """The records in `folders`."""

    folders: Folders

    def names(self) -> list[str]:
        """The clusters that have a record, sorted.

        A folder without one is of a command that ended before it wrote, or after it removed it.
        """
        named = self.folders.names()
        return [name for name in named if (self.folders.path(name) / PLACE_FILE).exists()]

    def write(self, record: Record, stack: Stack) -> None:
        """Records a cluster. What `down` needs is apart from what describes the cluster."""
        self.folders.write(stack.name, PLACE_FILE, asdict(record))
        self.folders.write(stack.name, FILE, {"stack": stack.model_dump(mode="json")})

    def read(self, name: str) -> Record:
        """The record of a cluster.

        Raises:
            NotUpError: there is no such cluster.
            BrokenRecordsError: the record cannot be read.
        """
        found = self.folders.read(name, PLACE_FILE)
        if found is None:
            raise not_up(name)
        try:
            return Record(
                place=Place(**found["place"]),
                names=Names(**found["names"]),
                own_secret=bool(found["own_secret"]),
                own_claim=found.get("own_claim"),
                by_pulumi=bool(found.get("by_pulumi")),
                job=found.get("job") or "",
                uid=found.get("uid") or "",
            )
        except (TypeError, KeyError) as error:
            raise self.folders.broken(name, self.folders.path(name) / PLACE_FILE, error) from error

    def stack(self, name: str) -> Stack:
        """The stack of a cluster. Raises as `read` does."""
        found = self.folders.read(name, FILE)
        if found is None:
            raise not_up(name)
        try:
            return Stack.model_validate(found["stack"])
        except (KeyError, ValidationError) as error:
            raise self.folders.broken(name, self.folders.path(name) / FILE, error) from error

    def readable(self, name: str) -> Record | None:
        """The record, if there is one that can be read."""
        with contextlib.suppress(BrokenRecordsError):
            return self.read(name) if name in self.names() else None
        return None

    def forget(self, name: str) -> None:
        """Closes a cluster's port-forward, and removes its record."""
        with self.tunnel(name).closed():
            self.folders.remove(name)

    @contextlib.contextmanager
    def without_its_kubernetes(self, name: str) -> Iterator[None]:
        """Adds to an error how to forget a cluster whose Kubernetes is gone for good."""
        try:
            yield
        except (UnreachableError, UsageError) as error:
            if not isinstance(error, ApiError):
                error.add_note(
                    "if that Kubernetes does not exist any more: rm -r "
                    f"{shlex.quote(str(self.folders.path(name)))}"
                )
            raise

    def forget_stray(self, name: str, progress: Progress) -> None:
        """Closes a port-forward that was opened while another command removed the record."""
        if name in self.folders.names():
            with self.folders.locked(name, progress):
                if name not in self.names():
                    self.forget(name)

    def tunnel(self, name: str) -> Tunnel:
        return Tunnel(self.folders.path(name))

    def token(self, name: str) -> Path:
        """The file of a cluster's token."""
        return self.folders.path(name) / TOKEN_FILE

    def write_token(self, name: str, token: str) -> None:
        write_private(self.token(name), token)


def as_annotation(stack: Stack) -> str:
    """A stack as the text that its RayCluster carries, for machines without a record."""
    return json.dumps(stack.model_dump(mode="json"), separators=(",", ":"))


def is_unreadable(found: Object) -> bool:
    """Whether it carries a stack that this Sunspot cannot read."""
    annotated = STACK_ANNOTATION in (found["metadata"].get("annotations") or {})
    return annotated and stack_of(found) is None


def stack_of(ray_cluster: Object | None) -> Stack | None:
    """The stack that a RayCluster carries; None if it has none that this Sunspot reads."""
    metadata = {} if ray_cluster is None else ray_cluster["metadata"]
    text = (metadata.get("annotations") or {}).get(STACK_ANNOTATION)
    if text is None:
        return None
    try:
        return Stack.model_validate(json.loads(text))
    except (ValueError, ValidationError):
        return None
