"""A roll of workers on Azure: an edit that gives them another boot, and what was drained for it."""

from dataclasses import replace

from azure_clusters import FIXED_SET, GPU_SET, join, leave, settings, write_settings
from azure_model.arm import Vm
from azure_stacks import declared, run, up

from sunspot.targets.azure import by_hand

SECOND = "second"


def edited(cluster, place, *kinds, boot=SECOND, then=lambda: None):
    """Has the next `up` give these node types another boot: new models, new settings."""
    plain = type(place.fake).up

    def engine_up(progress):
        for kind in kinds:
            cluster.arm.sets[f"sunspot-x-{kind}"].model = boot
        now = settings(cluster.arm)
        write_settings(cluster.arm, replace(now, boots={**now.boots, **dict.fromkeys(kinds, boot)}))
        then()
        return plain(place.fake, progress)

    place.fake.up = engine_up


def drained(cluster):
    """The names of the nodes that were drained, in order."""
    lines = cluster.drained.read_text().splitlines() if cluster.drained.exists() else []
    return [name for line in lines for name in line.partition("--no-wait ")[2].split()]


def work_ends(cluster, *, but=(), seen=lambda: None):
    """Has nodes leave Ray once they drain, at the next look at the machines; `but` go on."""
    plain = type(cluster.arm)._list

    def listed(start):
        for name in drained(cluster):
            if name not in but:
                leave(cluster, name)
        seen()
        return plain(cluster.arm, start)

    cluster.arm._list = listed


def models(cluster, scale_set=FIXED_SET):
    return sorted(vm.model for vm in cluster.arm.vms.values() if vm.scale_set == scale_set)


def with_gpu_workers(cluster, *names):
    cluster.arm.add(GPU_SET)
    cluster.arm.sets[GPU_SET].capacity = len(names)
    for name in names:
        cluster.arm.vms[name] = Vm(name, GPU_SET, "Succeeded")
        join(cluster, name, "gpu")


def scaled(cluster, name, low, high):
    """Gives a group these limits by hand, in the settings alone."""
    (group,) = [one for one in declared().cluster.scaling_groups if one.name == name]
    now = settings(cluster.arm)
    write_settings(cluster.arm, by_hand.resized(now, group, (low, high), nonce="n"))


def launches(cluster, group="gpu"):
    """Has Ray's autoscaler make one machine of the new boot for each that is deleted."""

    def launch(name):
        leave(cluster, name)
        made = Vm(f"new_{name}", f"sunspot-x-{group}", "Succeeded", model=SECOND)
        cluster.arm.vms[made.name] = made
        cluster.arm.sets[made.scale_set].capacity += 1
        join(cluster, made.name, group, SECOND)

    cluster.arm.on_delete = launch


def both_are_rolled(cluster, place):
    """Gives the fixed group another boot, and finds its two workers drained and replaced."""
    work_ends(cluster)
    edited(cluster, place, "fixed")
    up(cluster)
    assert drained(cluster) == ["vm_a", "vm_b"]
    assert models(cluster) == [SECOND, SECOND]


def failed(code, *arguments):
    result = run("up", "x", *arguments)
    assert result.exit_code == code, result.output
    return " ".join(result.stderr.split())
