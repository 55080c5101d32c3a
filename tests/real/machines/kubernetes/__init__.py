"""A real Kubernetes with KubeRay's operator: one node that is namespaces of this machine.

Its programs are built by scripts/kubernetes/build.sh. `python -m machines.kubernetes` starts one
for a person, or beside a command.
"""

import os
from pathlib import Path

from machines import PROJECT

CACHE = Path(os.environ.get("SUNSPOT_KUBERNETES_DIR", PROJECT / ".cache" / "kubernetes"))
BIN = CACHE / "bin"
# What KubeRay publishes beside its operator.
KUBERAY = CACHE / "kuberay"
