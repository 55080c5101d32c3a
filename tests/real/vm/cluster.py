"""A cluster of virtual machines, as its tests see it."""

from dataclasses import dataclass

from machine import Machine
from network import Network
from project import Project
from stand_ins import Platform


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The stack's machines, its user, and Azure as they see it."""

    project: Project
    network: Network
    head: Machine
    worker: Machine
    platform: Platform
    token: str

    def sunspot(self, *arguments: str) -> str:
        """What `sunspot ARGUMENTS` prints to its user; fails unless it ends with 0."""
        return self.project.sunspot(self.network, *arguments)
