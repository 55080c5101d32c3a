"""What only a cluster's own machines can try; it runs on the head as a Ray job.

    python probe.py {changes,results,growth,eviction} --config FILE [...]

Each answer is a line of JSON behind MARK. It imports only what is on a node: `sunspot.node`, Ray,
requests. FILE is the config of the head's autoscaler.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from sunspot.node import gcs
from sunspot.node.azure import imds, refusals
from sunspot.node.azure.arm import BASE_URL, Answer, Arm, ArmError
from sunspot.node.azure.imds import Imds, ImdsError
from sunspot.node.azure.scale_sets import COMPUTE_VERSION
from sunspot.node.files import write_private
from sunspot.node.metrics import Entry, EventLog

MARK = "first-contact: "

POLL_S = 2.0
OPERATION_S = 300.0
# Some five minutes of boot, and Azure's own.
GROWTH_S = 1500.0
# An eviction follows within 30 minutes (Microsoft's page on Set-AzVM, -SimulateEviction).
NOTICE_S = 2400.0
LEAVING_S = 300.0
GONE_S = 600.0
# The watcher's last word on a node that has left.
ENTRY_S = 15.0
IDLE_MINUTES = 1.0

PRECONDITION_FAILED = 412
STORAGE = "https://storage.azure.com"
# Of the API "Path - Create" of Data Lake Storage.
STORAGE_VERSION = "2023-11-03"
GROUP_LABEL = "ray.io/node-group"

Said = dict[str, Any]
"""An outcome ("ok", "failed", "not tried") and its detail."""


def said(outcome: str, detail: str, **more: Any) -> Said:
    """One answer."""
    return {"outcome": outcome, "detail": detail, **more}


def tell(answer: Mapping[str, Any]) -> None:
    """Prints an answer for those who read the job's log."""
    print(MARK + json.dumps(answer), flush=True)


class Azure:
    """The head's scale set of one group, by the head's own identity."""

    def __init__(self, config: Mapping[str, Any], group: str) -> None:
        provider = config["provider"]
        tokens = Imds(provider.get("imds_url", imds.BASE_URL), provider["identity_client_id"])
        self.arm = Arm(tokens, provider.get("arm_url", BASE_URL))
        self.name = provider["scale_sets"][group]
        compute = (
            f"/subscriptions/{provider['subscription_id']}/resourceGroups/"
            f"{provider['resource_group']}/providers/Microsoft.Compute"
        )
        self.path = f"{compute}/virtualMachineScaleSets/{self.name}"
        self._machines = f"{compute}/virtualMachines"

    def read(self) -> Answer:
        """The set."""
        return self.arm.get(self.path, COMPUTE_VERSION)

    def capacity(self) -> int:
        """The set's capacity."""
        return int(self.read().body["sku"].get("capacity") or 0)

    def machines(self) -> dict[str, str]:
        """The set's machines, each with its provisioning state."""
        found: dict[str, str] = {}
        for one in chain.from_iterable(self.arm.pages(self._machines, COMPUTE_VERSION)):
            has = one.get("properties") or {}
            of = ((has.get("virtualMachineScaleSet") or {}).get("id") or "").rpartition("/")[2]
            if of.lower() == self.name.lower():
                found[one["name"]] = str(has.get("provisioningState"))
        return found


# The set's etag, and its operations


def changes(azure: Azure) -> Said:
    """Changes nothing of the set, with its own etag and with a stale one; follows the operation."""
    try:
        found = azure.read()
    except ArmError as error:
        return {"etag": failed(error), "poll": said("not tried", "the set could not be read")}
    if found.etag is None:
        no_etag = said("failed", "Azure gives the scale set no etag")
        return {"etag": no_etag, "poll": said("not tried", "the set was not changed")}
    try:
        answer = _same_again(azure, found, found.etag)
    except ArmError as error:
        refused = said("failed", f"its own etag is refused ({form(found.etag)}): {error}")
        return {"etag": refused, "poll": said("not tried", "the set was not changed")}
    # First: with a change in progress, a stale etag could be a conflict of another kind.
    poll = _followed(azure, answer)
    return {"etag": _stale(azure, found.etag), "poll": poll}


def _same_again(azure: Azure, found: Answer, etag: str) -> Answer:
    body = {"sku": found.body["sku"]}
    return azure.arm.send("PATCH", azure.path, COMPUTE_VERSION, body, etag)


def _followed(azure: Azure, answer: Answer) -> Said:
    """Follows the operation of a change with the rights that the head has."""
    if answer.operation is None:
        return said("not tried", "Azure made the change at once, without an operation")
    header = "Azure-AsyncOperation" if answer.is_status else "Location"
    try:
        over = azure.arm.wait(answer, OPERATION_S)
    except ArmError as error:
        return failed(error)
    if not over:
        return said("failed", f"the operation is not over after {OPERATION_S:.0f} s ({header})")
    return said("ok", f"the head may follow its operations ({header})")


def _stale(azure: Azure, before: str) -> Said:
    """Whether an old etag is refused with 412."""
    changed = False
    try:
        found = azure.read()
        changed = found.etag not in (None, before)
        _same_again(azure, found, before if changed else _altered(before))
    except ArmError as error:
        if error.status == PRECONDITION_FAILED:
            how = "changes with each change" if changed else "stays if nothing changes"
            return said("ok", f"accepted; a stale one gets 412 ({form(before)}, {how})")
        return said("failed", f"a stale etag does not get 412: {error}")
    return said("failed", f"a stale etag is accepted ({form(before)})")


def _altered(etag: str) -> str:
    """An etag of the same form that the set never had."""
    return re.sub(r"[0-9A-Za-z](?=[^0-9A-Za-z]*$)", lambda at: "1" if at[0] == "0" else "0", etag)


def form(etag: str) -> str:
    """The form of an etag, without its value."""
    weak, quoted = etag.startswith("W/"), etag.endswith('"')
    kind = "a GUID" if re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", etag, re.IGNORECASE) else "no GUID"
    return f"{'weak' if weak else 'strong'}, {'quoted' if quoted else 'unquoted'}, {kind}"


def failed(error: ArmError) -> Said:
    """What Azure refused, with the right that is missing if it says so."""
    denied = refusals.is_denial(error)
    return said("failed", refusals.lacking(error) if denied else str(error))


# Results


def results(url: str, servers: Mapping[str, str]) -> Said:
    """Makes a folder in the container as this machine's identity, with a file, and removes it.

    Args:
        url: the container, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/.
        servers: `storage_url` and `imds_url`, instead of Azure's own.
    """
    if not url:
        return said("not tried", "SUNSPOT_STORAGE is not set on this machine")
    container, _, host = urlsplit(url).netloc.rpartition("@")
    folder = f"first-contact-{uuid.uuid4().hex}"
    try:
        files = None if "storage_url" in servers else _arrow(host)
        if files is None:
            _by_rest(servers, f"https://{host}", f"{container}/{folder}")
            return said("ok", "made and removed (by the REST API)")
        system, version = files
        system.create_dir(container)  # as Ray Train does it, for a folder without a name
        system.create_dir(f"{container}/{folder}")
        with system.open_output_stream(f"{container}/{folder}/file") as file:
            file.write(b"first contact\n")
        system.delete_dir(f"{container}/{folder}")
    except Exception as error:  # Arrow's errors have no common class
        return said("failed", f"{type(error).__name__}: {error}")
    return said("ok", f"made, written and removed (by Arrow {version})")


def _arrow(host: str) -> tuple[Any, str] | None:
    """Arrow's filesystem for the account; None if this image's Arrow has none for identities."""
    try:
        import pyarrow
        from pyarrow import fs

        account, _, service = host.partition(".")
        domain = service.partition(".")[2]
        system = fs.AzureFileSystem(
            account,
            client_id=os.environ.get("AZURE_CLIENT_ID") or None,
            blob_storage_authority=f".blob.{domain}",
            dfs_storage_authority=f".dfs.{domain}",
        )
    except (ImportError, AttributeError, TypeError):
        return None
    return system, pyarrow.__version__


def _by_rest(servers: Mapping[str, str], account: str, folder: str) -> None:
    """Path - Create with resource=directory, and Path - Delete (Data Lake Storage's REST API)."""
    machine = Imds(servers.get("imds_url", imds.BASE_URL), os.environ.get("AZURE_CLIENT_ID"))
    token = machine.token(STORAGE)
    headers = {"Authorization": f"Bearer {token}", "x-ms-version": STORAGE_VERSION}
    path = f"{servers.get('storage_url', account)}/{folder}"
    for method, query in (("PUT", {"resource": "directory"}), ("DELETE", {"recursive": "true"})):
        with requests.Session() as session:
            session.trust_env = False
            answer = session.request(method, path, params=query, headers=headers, timeout=60)
        if not answer.ok:
            code = answer.headers.get("x-ms-error-code", "")
            raise OSError(f"{method} of a folder: HTTP {answer.status_code} {code}".strip())


# Workers


def growth(azure: Azure, config: Path, group: str, servers: Mapping[str, str]) -> Said:
    """Has a task wait for a worker, which then makes a folder for results as itself."""
    _connect()
    _shorten_idleness(config)
    began = time.monotonic()
    name = _on_a_worker(group, _name)
    if name is None:
        return {"growth": _no_worker(azure), "results": said("not tried", "there is no worker")}
    seconds = time.monotonic() - began
    grown = said("ok", f"a task ran after {seconds:.0f} s, capacity {azure.capacity()}")
    stored = _on_a_worker(group, _results_here, servers)
    late = said("failed", "the worker did not answer")
    return {"growth": grown, "results": late if stored is None else stored}


def _name() -> str:
    return os.environ.get("RAY_CLOUD_INSTANCE_ID", "")


def _results_here(servers: Mapping[str, str]) -> Said:
    return results(os.environ.get("SUNSPOT_STORAGE", ""), servers)


def _connect() -> None:
    import ray

    ray.init(log_to_driver=False, logging_level=logging.ERROR)


def _begun(group: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """A task that only a worker of the group may run, and that is not repeated."""
    import ray

    task = ray.remote(num_cpus=1, max_retries=0, label_selector={GROUP_LABEL: group})(call)
    return task.remote(*arguments)


def _on_a_worker(group: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns on a worker of the group; None if no worker ran it in time."""
    import ray

    waiting = _begun(group, call, *arguments)
    ready, _ = ray.wait([waiting], timeout=GROWTH_S)
    return ray.get(waiting) if ready else None


def _no_worker(azure: Azure) -> Said:
    found = ", ".join(azure.machines().values()) or "none"
    return said(
        "failed",
        f"no worker ran a task within {GROWTH_S:.0f} s; capacity {azure.capacity()}, machines: "
        f"{found}",
    )


def _shorten_idleness(config: Path) -> None:
    """Has Ray, which reads the file at each tick, give idle workers back sooner."""
    known = json.loads(config.read_text(encoding="utf-8"))
    known["idle_timeout_minutes"] = min(IDLE_MINUTES, known["idle_timeout_minutes"])
    write_private(config, json.dumps(known))


# Eviction


def eviction(azure: Azure, group: str) -> Said:
    """Keeps a worker busy, tells its name, and watches how it leaves."""
    import ray

    _connect()
    name = _on_a_worker(group, _name)
    if name is None:
        return {"eviction": _no_worker(azure)}
    busy = _begun(group, lambda: time.sleep(NOTICE_S + LEAVING_S))
    tell({"worker": name})
    seen = watched(ray.get_runtime_context().gcs_address, name)
    ray.cancel(busy, force=True)
    return {"eviction": _after(azure, name, seen["detail"]) if seen["outcome"] == "ok" else seen}


def watched(address: str, name: str) -> Said:
    """How the node of this name leaves, by its own entry in the cluster's event log."""
    _until(NOTICE_S, lambda: _notice(address, name) or _away(address, name))
    entry = _notice(address, name)
    if entry is None:
        how = "gone without a notice" if _away(address, name) else "not given a notice"
        return said("failed", f"the worker was {how} within {NOTICE_S:.0f} s")
    notice = "no time given" if entry.notice_s is None else f"{entry.notice_s:.0f} s of notice"
    if not _until(LEAVING_S, lambda: _away(address, name)):
        return said("failed", f"{notice}, and the worker did not leave within {LEAVING_S:.0f} s")
    left = _until(ENTRY_S, lambda: _ended(address, name))
    took = f", left after {left.drain_s:.0f} s ({left.outcome})" if left else ", gone from Ray"
    return said("ok", f"drained: {notice}{took}")


def _notice(address: str, name: str) -> Entry | None:
    entries = EventLog(address).read()
    return next((one for one in entries if one.node == name and one.type == "Preempt"), None)


def _ended(address: str, name: str) -> Entry | None:
    entry = _notice(address, name)
    return entry if entry and entry.drain_s is not None else None


def _away(address: str, name: str) -> bool:
    return name not in gcs.alive_nodes(gcs.connect(address))


def _after(azure: Azure, name: str, detail: str) -> Said:
    """What was seen, and the set once the machine is gone."""
    if not _until(GONE_S, lambda: name not in azure.machines()):
        return said("failed", f"{detail}; Azure still lists the machine after {GONE_S:.0f} s")
    return said("ok", f"{detail}; then capacity {azure.capacity()}")


def _until(limit_s: float, look: Callable[[], Any]) -> Any:
    """The first answer that is true, or the last one. Where it raises, it is asked again."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            found = look()
        except Exception as error:  # Ray's errors have no common class
            found = None
            print(f"asking again: {error}", file=sys.stderr)
        if found or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)


def main(arguments: list[str]) -> int:
    """Tries one thing and prints its answer."""
    parser = argparse.ArgumentParser(prog="probe.py", description=__doc__)
    parser.add_argument("trial", choices=["changes", "results", "growth", "eviction"])
    parser.add_argument("--config", type=Path, required=True, help="the autoscaler's config")
    parser.add_argument("--group", required=True, help="the group of the worker")
    given = parser.parse_args(arguments)
    config = json.loads(given.config.read_text(encoding="utf-8"))
    azure = Azure(config, given.group)
    provider = config["provider"]
    servers = {name: provider[name] for name in ("imds_url", "storage_url") if name in provider}
    trials: dict[str, Callable[[], Said]] = {
        "changes": lambda: changes(azure),
        "results": lambda: {"results": _results_here(servers)},
        "growth": lambda: growth(azure, given.config, given.group, servers),
        "eviction": lambda: eviction(azure, given.group),
    }
    try:
        tell(trials[given.trial]())
    except (ArmError, ImdsError) as error:
        tell({"error": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
