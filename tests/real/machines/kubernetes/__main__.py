"""Starts a cluster: for a person until Ctrl-C, or beside a command until that ends.

    PYTHONPATH=tests:tests/real python -m machines.kubernetes [COMMAND...]

kubectl and Sunspot find it by the variable KUBECONFIG, the tests by SUNSPOT_TESTS_KUBERNETES.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from machines.kubernetes import BIN, container_images, needed
from machines.kubernetes.cluster import RUNNING, Cluster, cluster

_TEXT = """
Kubernetes runs, with KubeRay's operator. In another terminal:

    export KUBECONFIG={kubeconfig} PATH={ours}:{programs}:$PATH
    kubectl get nodes
    sunspot up dev --target kubernetes

Its pods have this image of Ray, and reach no registry: {image}
Logs: {logs}
Ctrl-C ends the cluster and leaves nothing of it.
"""


def main(command: list[str]) -> int:
    """Runs the command beside a cluster; without one, waits to be interrupted. The exit status."""
    if reason := needed.why_not():
        print(f"kubernetes: {reason}", file=sys.stderr)
        return 2
    # It ends as at Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    try:
        with cluster(lambda step: _report(step, began)) as made:
            _report("ready", began)
            if not command:
                print(_told(made), flush=True)
                signal.pause()
            variables = {"KUBECONFIG": str(made.kubeconfig), RUNNING: str(made.folder)}
            return subprocess.call(command, env={**os.environ, **variables})
    except KeyboardInterrupt:
        return 130 if command else 0


def _report(step: str, began: float) -> None:
    print(f"kubernetes: {time.monotonic() - began:3.0f} s: {step}", file=sys.stderr, flush=True)


def _told(made: Cluster) -> str:
    return _TEXT.format(
        kubeconfig=made.kubeconfig,
        programs=BIN,
        ours=Path(sys.prefix, "bin"),
        image=container_images.RAY[0],
        logs=made.logs,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
