"""The contract of every target, on one host with a real engine and the Compose plugin."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "contract"))

from test_contract import *  # noqa: F403
