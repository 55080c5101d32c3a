"""How a cluster that is up is reached: its record, its head by SSH, Ray through a tunnel."""

from __future__ import annotations

from dataclasses import dataclass

from sunspot.ray.handle import ClusterHandle
from sunspot.targets.azure import head, history
from sunspot.targets.azure.known import Known
from sunspot.targets.azure.records import Record
from sunspot.targets.azure.scaling import Cluster
from sunspot.targets.protocol import Progress, silent
from sunspot.targets.ssh import Ssh


@dataclass(frozen=True)
class Reach:
    """Reaches the clusters of which there are records.

    Attributes:
        known: the records, and the Pulumi stacks that they are of.
    """

    known: Known

    def group_id(self, name: str) -> str:
        """The ARM id of the resource group, which the record of an older version lacks."""
        records = self.known.records
        record = records.known(name)
        if not record.group_id:
            with records.locked(name):
                record = self.known.refresh(name, silent)
        return record.group_id

    def cluster(self, name: str, progress: Progress) -> Cluster:
        """A cluster whose lock is held."""
        handle, record = self.connect(name, progress), self.known.records.known(name)
        if not record.group_id:  # that of an older version
            record = self.known.refresh(name, progress)
        ssh = self.ssh(name, record)
        return Cluster(
            stack=self.known.stack(name),
            vm=head.vm_of(record.group_id, record.head),
            handle=handle,
            run_on_head=head.running(ssh, handle.head_address),
            notices=lambda: history.recorded(ssh).notices,
        )

    def current(self, name: str, progress: Progress = silent) -> Record:
        """The record as it is if the tunnel is alive; otherwise updated from Pulumi's state."""
        records = self.known.records
        record = records.known(name)
        if records.tunnel(name).port() is None:
            with records.locked(name, progress):
                if records.tunnel(name).port() is None:  # nobody has looked meanwhile
                    record = self.known.refresh(name, progress)
        return record

    def ssh(self, name: str, record: Record) -> Ssh:
        """The head of a cluster, by SSH."""
        hosts = self.known.records.folder(name) / "known_hosts"
        return head.ssh(self.known.stack(name), record, hosts)

    def live(self, name: str) -> ClusterHandle | None:
        """The handle through the live tunnel, if there is one: that changes nothing.

        So it needs no lock, which an `up` that waits for workers holds for long.
        """
        records = self.known.records
        tunnel, token = records.tunnel(name), records.folder(name) / "token"
        alive = tunnel.port()
        if alive is None or not token.exists():
            return None
        record = records.known(name)
        return head.handle(name, record, token=token, dashboard=alive, forwarded=tunnel.also())

    def connect(self, name: str, progress: Progress, port: int | None = None) -> ClusterHandle:
        """The handle, through the live tunnel or a new one, of a cluster whose lock is held."""
        records = self.known.records
        records.known(name)
        tunnel, token = records.tunnel(name), records.folder(name) / "token"
        if port in (None, tunnel.port()) and (found := self.live(name)) is not None:
            return found
        record = self.known.refresh(name, progress)
        ssh = self.ssh(name, record)
        opened = head.open_tunnel(tunnel, ssh, record, preferred=port)
        head.fetch_token(ssh, token)
        return head.handle(name, record, token=token, dashboard=opened, forwarded=tunnel.also())
