"""The steps of a first contact on a cluster that is up."""

from __future__ import annotations

import time
from collections.abc import Callable

from sunspot.errors import SunspotError
from sunspot.targets.azure import images
from sunspot.targets.azure.doctor.clients import explained
from sunspot.targets.azure.first_contact.head_jobs import Answer, read
from sunspot.targets.azure.first_contact.site import Site
from sunspot.targets.azure.first_contact.steps import NotTriedError, Step

UP, DOWN = "up", "down"
PULL = "image pulled by identity"
ETAG = "scale set: etag with If-Match"
POLL = "scale set: polling its operation"
RESULTS_HEAD = "results folder, from the head"
GROWTH = "growth 0 -> 1"
RESULTS_WORKER = "results folder, from a worker"
IDLENESS = "idleness 1 -> 0"
EVICTION = "simulated eviction"
RESTART = "head restart"

REGISTRIES = ".azurecr.io"
CONTAINER = "sunspot-ray"

POLL_S = 3.0
# One idle minute, Ray's tick, and a deletion of some minutes.
IDLE_S = 1200.0
# A restart of the machine, its boot, and a container of Ray.
RESTART_S = 1200.0
OPERATION_S = 900.0  # how long Azure may take to restart a machine


def steps(site: Site) -> list[Step]:
    """All of them but the last, which takes everything away."""
    jobs = site.jobs
    return [
        Step(name=UP, run=lambda: bring_up(site)),
        Step(name=PULL, run=lambda: pulled(site), needs=(UP,)),
        Step(name=ETAG, run=lambda: jobs.part("changes", "etag"), needs=(UP,)),
        Step(name=POLL, run=lambda: jobs.part("changes", "poll"), needs=(UP,)),
        Step(name=RESULTS_HEAD, run=lambda: jobs.part("results", "results"), needs=(UP,)),
        Step(name=GROWTH, run=lambda: jobs.part("growth", "growth"), needs=(UP,)),
        Step(name=RESULTS_WORKER, run=lambda: jobs.part("growth", "results"), needs=(GROWTH,)),
        Step(name=IDLENESS, run=lambda: emptied(site), needs=(GROWTH,)),
        Step(name=EVICTION, run=lambda: evicted(site), needs=(GROWTH,)),
        Step(name=RESTART, run=lambda: restarted(site), needs=(UP,)),
    ]


def bring_up(site: Site) -> str:
    """Brings the cluster up."""
    site.place.up(site.stack, site.progress)
    return f"the head accepts jobs ({site.plan.head.size.name})"


def pulled(site: Site) -> str:
    """Whether Ray's container on the head comes from the stack's own registry.

    Only identities may pull from that: it takes no anonymous pulls, and has no other user.
    """
    wanted, copies = site.plan.head.image, site.plan.copies
    if wanted is not None and images.pulled(wanted, copies, REGISTRIES) == wanted:
        raise NotTriedError("the stack pulls its image where it is, without an identity")
    command = ("docker", "inspect", "--format", "{{.Config.Image}}", CONTAINER)
    image = site.place.shell(site.name).read("sudo", "-n", *command).strip()
    host, _ = images.host_and_rest(image)
    if not host.endswith(REGISTRIES):
        known = host if host == images.HUB else "another registry"  # which may be a company's
        raise SunspotError(f"Ray's container is from {known}, not from the stack's registry")
    return f"Ray's container is from {host}"


def emptied(site: Site) -> str:
    """Waits until the idle worker has been given back: no machine, and capacity 0."""

    def empty() -> bool:
        return not _capacity(site) and not _machines(site)

    if not _until(IDLE_S, empty):
        raise SunspotError(
            f"after {IDLE_S:.0f} s the set has capacity {_capacity(site)} and "
            f"{len(_machines(site))} machines"
        )
    return "no machine is left, and the capacity is 0"


def evicted(site: Site) -> str:
    """Has Azure act an eviction of a worker with work on it; the head watches how it leaves."""

    azure = site.azure  # first: without it no worker is needed

    def simulate(answer: Answer) -> None:
        if worker := answer.get("worker"):
            site.progress("the worker runs; Azure is asked for an eviction")
            with explained():
                azure.compute.virtual_machines.simulate_eviction(site.group, worker)

    return read(site.jobs.run("eviction", simulate), "eviction")


def restarted(site: Site) -> str:
    """Restarts the head's machine, and waits until the same cluster answers."""
    azure, jobs = site.azure, site.jobs
    node, known = jobs.head_node(), jobs.ids()
    with explained():
        machines = azure.compute.virtual_machines
        restart = machines.begin_restart(site.group, site.plan.head_name, polling_interval=POLL_S)
        restart.wait(OPERATION_S)
        if not restart.done():
            raise SunspotError(f"Azure did not restart the machine within {OPERATION_S:.0f} s")
    began = time.monotonic()
    site.progress("the head restarts")
    if not _until(RESTART_S, lambda: jobs.head_node() not in ("", node)):
        raise SunspotError(f"the head's Ray did not answer again within {RESTART_S:.0f} s")
    seconds = time.monotonic() - began
    if lost := known - jobs.ids():
        raise SunspotError(
            f"the head answers after {seconds:.0f} s, but as another cluster: {len(lost)} of "
            f"{len(known)} jobs are not in its list"
        )
    return f"the same cluster answers after {seconds:.0f} s, with its list of {len(known)} jobs"


def _capacity(site: Site) -> int:
    with explained():
        found = site.azure.compute.virtual_machine_scale_sets.get(site.group, site.scale_set)
    capacity = None if found.sku is None else found.sku.capacity
    return capacity or 0


def _machines(site: Site) -> list[str]:
    with explained():
        listed = list(site.azure.compute.virtual_machines.list(site.group))
    sets = {
        str(one.name): str(one.virtual_machine_scale_set.id).rpartition("/")[2].lower()
        for one in listed
        if one.virtual_machine_scale_set is not None
    }
    return [name for name, of in sets.items() if of == site.scale_set.lower()]


def _until(limit_s: float, look: Callable[[], bool]) -> bool:
    """Whether it became so in time. What cannot be seen now is looked for again."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            if look():
                return True
        except NotTriedError:
            raise
        except SunspotError:
            pass  # the head restarts, or Azure did not answer this once
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
