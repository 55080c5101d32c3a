"""The contract of every target, on a real Kubernetes with KubeRay's operator."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "contract"))

from test_contract import *  # noqa: F403
