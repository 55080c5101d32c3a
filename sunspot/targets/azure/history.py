"""The record that a head on Azure keeps on its state disk, read over SSH."""

from __future__ import annotations

from sunspot.node import events, notices
from sunspot.node.azure.record import HeadRecord
from sunspot.targets.history import Recorded
from sunspot.targets.ssh import Ssh

# Between the two files; no line of either is this one.
_BETWEEN = "--- notices"

# The folder belongs to the user of the jobs, who may have put a link or a pipe there: so it is read
# as that user, and not for ever. A head without the folder, or without a file in it, has nothing.
_SCRIPT = f"""
user=$(stat --format=%u "$1" 2>/dev/null) || exit 0
exec sudo -n setpriv --reuid="$user" --regid="$user" --clear-groups timeout 20 \\
    sh -c 'cat "$1" 2>/dev/null; echo; echo "{_BETWEEN}"; cat "$2" 2>/dev/null; exit 0' sh "$2" "$3"
"""


def recorded(head: Ssh, record: HeadRecord | None = None) -> Recorded:
    """The events and notices of a head, asked in one connection.

    Args:
        head: the way to the head.
        record: where the record is on the head; by default where cloud-init has put it.

    Raises:
        SunspotError: the head cannot be reached, or refuses the command.
    """
    at = record or HeadRecord()
    paths = (at.folder, at.events.path, at.notices.path)
    text = head.read("sh", "-c", _SCRIPT, "sh", *map(str, paths))
    happened, _, said = text.partition(f"\n{_BETWEEN}\n")
    return Recorded(events=events.parse(happened), notices=notices.current(notices.parse(said)))
