"""What a cluster may change while it runs: the autoscaler's config, and the prices of its nodes.

They are the user data of the head's VM, which Azure changes without a stop or a restart and IMDS
serves: at most 64 KB, and no secrets, since every process on the VM may read it (Microsoft, "User
Data for Azure Virtual Machine"). What a VM boots from is its custom data, which never changes.

    python -m sunspot.node.azure.live KEPT < the user data as IMDS gives it

prints the autoscaler's config. It keeps settings that are right in the file KEPT, and falls back on
that for wrong ones. It needs only Python itself, since the host runs it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sunspot.node.asleep import Lease
    from sunspot.node.notices import Notices

ABOUT = "settings"
"""What a notice of settings that are refused is about."""

log = logging.getLogger(__name__)


class LiveSettingsError(Exception):
    """The settings are not what Sunspot writes."""


@dataclass(frozen=True, kw_only=True)
class LiveSettings:
    """The settings of a cluster that runs.

    Attributes:
        autoscaler: the config of Ray's autoscaler; None for a head without one.
        prices: USD an hour by node type.
        idle: what is done when nothing uses the cluster; see idle.py. None for nothing.
        awake: the settings themselves, where these are those of a cluster that sleeps.
        scaled: what `sunspot scale` gave to groups, by name; the head only notes that it changes.
        leaving: node types whose workers `sunspot up` drains before their scale sets go.
        boots: by node type, the hash of what its machines are to boot from; the head only keeps it.
    """

    autoscaler: Mapping[str, Any] | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    idle: Mapping[str, Any] | None = None
    awake: LiveSettings | None = field(default=None, repr=False)
    scaled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    leaving: tuple[str, ...] = ()
    boots: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The settings as user data, before Azure's base64."""
        if self.awake is not None:
            return self.awake.text()
        given = {name: value for name, value in asdict(self).items() if name != "awake"}
        settings = json.dumps(given, separators=(",", ":"))
        return f"{_sha256(settings)}\n{settings}"

    def elastic_types(self) -> frozenset[str]:
        """The node types that the autoscaler scales."""
        if self.autoscaler is None:
            return frozenset()
        types = self.autoscaler["available_node_types"].keys()
        return frozenset(types - {self.autoscaler["head_node_type"]})

    def digest(self) -> str:
        """A short text that differs for other settings."""
        return self.text().partition("\n")[0]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def parse(text: str) -> LiveSettings:
    """The settings that `LiveSettings.text` wrote.

    Raises:
        LiveSettingsError: they are not, or contradict each other.
    """
    checksum, _, settings = text.partition("\n")
    # At a file that it does not accept, Ray's autoscaler fails before it asks for another one.
    if checksum != _sha256(settings):
        raise LiveSettingsError("not as Sunspot writes them: the checksum is wrong")
    try:
        found = json.loads(settings)
        autoscaler, prices = found["autoscaler"], found["prices"]
        if autoscaler is not None:
            _check_autoscaler(autoscaler)
        return LiveSettings(
            autoscaler=autoscaler,
            prices={str(name): float(usd) for name, usd in prices.items()},
            idle=_checked_idle(found.get("idle")),
            scaled={str(name): dict(one) for name, one in found.get("scaled", {}).items()},
            leaving=tuple(map(str, found.get("leaving", ()))),
            boots={str(name): str(boot) for name, boot in found.get("boots", {}).items()},
        )
    except KeyError as error:
        raise LiveSettingsError(f"{error} is missing") from error
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise LiveSettingsError(f"not the settings of a cluster: {error}") from error


def _checked_idle(given: Any) -> Mapping[str, Any] | None:
    if given is None:
        return None
    if not float(given["after_minutes"]) > 0:
        raise ValueError(f"idle after {given['after_minutes']!r} minutes")
    return {**given, "action": str(given["action"]), "fixed": [*given["fixed"]]}


def _check_autoscaler(config: Mapping[str, Any]) -> None:
    types, provider = config["available_node_types"], config["provider"]
    workers = types.keys() - {config["head_node_type"]}
    for name, kind in types.items():
        low, high = kind["min_workers"], kind["max_workers"]
        if not 0 <= low <= high:
            raise ValueError(f"{name!r} has {low} to {high} workers")
    for part in ("scale_sets", "maximums"):
        if missing := sorted(workers - provider[part].keys()):
            raise ValueError(f"{part} lacks {', '.join(missing)}")
    if both := workers & set(provider["fixed"]):
        raise ValueError(f"{', '.join(sorted(both))}: fixed, and not")
    if unknown := {*provider["twins"], *provider["twins"].values()} - workers:
        raise ValueError(f"twins has {', '.join(sorted(unknown))}, which is not a node type")
    if not isinstance(config["max_workers"], int):
        raise TypeError(f"max_workers is {config['max_workers']!r}")


def encoded(text: str) -> str:
    """A text as user data, which Azure takes and gives as base64."""
    return base64.b64encode(text.encode()).decode("ascii")


def decoded(user_data: str) -> str:
    """The text of user data, for which IMDS gives base64.

    Raises:
        LiveSettingsError: it is not base64 of a text, or empty.
    """
    try:
        text = base64.b64decode(user_data.strip(), validate=True).decode()
    except ValueError as error:  # of base64, and of the text in it
        raise LiveSettingsError(f"not base64 of a text: {error}") from error
    if not text:
        raise LiveSettingsError("empty")
    return text


class UserData(Protocol):
    """A client of IMDS: an `Imds`."""

    def user_data(self) -> str:
        """The VM's user data, as base64."""
        ...


class Live:
    """The latest settings that are right. Thread-safe.

    Args:
        imds: where the user data is.
        notices: where a refusal is said, besides the log.
        lease: what changes the autoscaler's config while nothing uses the cluster.
    """

    def __init__(
        self, imds: UserData, notices: Notices | None = None, lease: Lease | None = None
    ) -> None:
        self._imds = imds
        self._lease = lease
        self._notices = notices
        self._lock = threading.Lock()
        self._read: str | None = None
        self._failed = False
        self._latest = LiveSettings()

    def latest(self) -> LiveSettings:
        """The user data now; where it is wrong, or IMDS does not answer, the last right one."""
        with self._lock:
            self._look()
            return self._as_wanted()

    def _as_wanted(self) -> LiveSettings:
        how = None if self._lease is None else self._lease.read()
        if how is None or self._latest.autoscaler is None:
            return self._latest
        from sunspot.node.asleep import applied

        config = applied(self._latest.autoscaler, how)
        return replace(self._latest, autoscaler=config, awake=self._latest)

    def _look(self) -> None:
        try:
            read = self._imds.user_data()
        except Exception as error:  # Ray's tick, and a scrape, go on without an answer
            if not self._failed:
                log.warning("the cluster's settings cannot be read: %s", error)
            self._failed = True
            return
        self._failed = False
        if read == self._read:
            return
        self._read = read
        try:
            self._latest = parse(decoded(read))
        except LiveSettingsError as error:
            log.error("the user data is refused, and the settings before it stay: %s", error)
            self._say(f"new settings are refused, and those before them stay: {error}")
        else:
            self._say(None)

    def _say(self, text: str | None) -> None:
        """Says that the settings are refused; None takes it back."""
        if self._notices is None:
            return
        from sunspot.node.notices import Notice

        try:
            if text is None:
                self._notices.drop(ABOUT)
            else:
                advice = "; `sunspot up` writes them again"
                self._notices.put(Notice(about=ABOUT, text=text + advice))
        except OSError as error:  # a full disk does not stop the autoscaler
            log.error("a notice is not kept: %s", error)


def create(config: Mapping[str, Any]) -> Live:
    """The settings that the autoscaler follows.

    Args:
        config: the autoscaler's config; optionally `record`, the folder of the head's record, where
            a refusal is said, and `imds_url`, instead of Azure's.
    """
    from sunspot.node.azure import imds
    from sunspot.node.azure.record import HeadRecord

    client = imds.Imds(config.get("imds_url", imds.BASE_URL))
    folder = config.get("record")
    if folder is None:
        return Live(client)
    record = HeadRecord(Path(folder))
    return Live(client, record.notices, record.lease)


def _keep(kept: Path, text: str) -> None:
    new = kept.with_name(f".{kept.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(kept)


def main(arguments: list[str]) -> int:
    """Prints the autoscaler's config; returns 1 if there are no settings that are right."""
    kept = Path(arguments[0])
    try:
        text = decoded(sys.stdin.buffer.read().decode("ascii", "replace"))
        config = _autoscaler(text)
    except LiveSettingsError as error:
        print(f"the head's user data is refused: {error}", file=sys.stderr)
        if not kept.exists():
            return 1
        print(f"the last right one is used: {kept}", file=sys.stderr)
        try:
            config = _autoscaler(kept.read_text(encoding="utf-8"))
        except (LiveSettingsError, OSError, ValueError) as wrong:
            print(f"it cannot be used either: {wrong}", file=sys.stderr)
            return 1
    else:
        try:
            _keep(kept, text)
        except OSError as error:  # a full disk does not stop a start with right settings
            print(f"the settings are not kept: {error}", file=sys.stderr)
    print(json.dumps(config))
    return 0


def _autoscaler(text: str) -> Mapping[str, Any]:
    config = parse(text).autoscaler
    if config is None:
        raise LiveSettingsError("this head has an autoscaler, and they have no config for it")
    return config


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
