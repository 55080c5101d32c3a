"""What a cluster takes of this machine, and what of that is missing."""

import os

import pytest

from machines import needs
from machines.kubernetes import BIN

NEED_KUBERNETES = "SUNSPOT_TESTS_NEED_KUBERNETES"

# Programs -> Debian's package of it.
PROGRAMS = {
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "conntrack": "conntrack",
    "containerd": "containerd",
    "curl": "curl",
    "debootstrap": "debootstrap",
    "etcd": "etcd-server",
    "ip": "iproute2",
    "iptables": "iptables",
    "runc": "runc",
    "strip": "binutils",
    "tini": "tini",
}
BUILT = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"),
    *("kubectl", "ray-operator", "coredns", "pause"),
)


def need() -> None:
    """Skips the test where a cluster cannot be started; in CI it fails."""
    if reason := why_not():
        pytest.fail(reason) if os.environ.get(NEED_KUBERNETES) else pytest.skip(reason)


def why_not() -> str | None:
    """What is missing here; None where nothing is."""
    if reason := needs.why_not(PROGRAMS):
        return reason
    missing = [str(BIN / program) for program in BUILT if not (BIN / program).exists()]
    return f"needs {', '.join(missing)}: run scripts/kubernetes/build.sh" if missing else None
