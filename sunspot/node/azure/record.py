"""Where the head keeps what is known of its cluster: on the state disk, so across its restarts.

The folder belongs to the user of Ray's image, who is also the user of every job: what is in it is
for people, and nothing that root does may follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sunspot.node.asleep import Lease
from sunspot.node.events import EventRecord
from sunspot.node.notices import Notices

FOLDER = "/var/lib/sunspot/state/record"


@dataclass(frozen=True)
class HeadRecord:
    """The files of one head's record, in `folder`."""

    folder: Path = Path(FOLDER)

    @property
    def events(self) -> EventRecord:
        """What happened."""
        return EventRecord(self.folder / "events.jsonl")

    @property
    def notices(self) -> Notices:
        """What is so now."""
        return Notices(self.folder / "notices.json")

    @property
    def beat(self) -> Path:
        """A file that is touched as long as the head runs; see attendance.py."""
        return self.folder / "beat"

    @property
    def joins(self) -> Path:
        """Which machines have joined, and which groups are paused; see joins.py."""
        return self.folder / "joins.json"

    @property
    def lease(self) -> Lease:
        """How the autoscaler's config is to be changed while nothing uses the cluster."""
        return Lease(self.folder / "asleep.json")

    @property
    def fixed(self) -> Path:
        """The capacities of the fixed groups' scale sets before they were emptied; see idle.py."""
        return self.folder / "fixed.json"
