"""How long until a task has run on each node of an allocation: ours and `ray symmetric-run`.

Both run in turn in the same allocation of Slurm, which this command asks for unless it is in one.
Ours is the script of `sunspot manifest`, as it would be submitted. With --nodes above 1 the nodes
must be different machines: `ray symmetric-run` refuses to start two nodes on one. Nodes need this
environment, in a folder that they share.

    python benchmarks/slurm.py --nodes 2
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import _options
import yaml
from _cluster import BIN, CPUS_A_NODE, TASK_ON_EACH_NODE
from _pairs import compare

PAIRS = 5
MEMORY_GB = 2


def main() -> None:
    """Print the comparison; the last line is JSON."""
    parser = _options.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=1, help="nodes of the allocation")
    nodes = parser.parse_args().nodes
    if "SLURM_JOB_ID" not in os.environ:
        sys.exit(_within_allocation(nodes))
    # In the home, which nodes share as a rule; /tmp is of one node.
    with tempfile.TemporaryDirectory(prefix="sunspot-bench-", dir=Path.home()) as name:
        folder = Path(name)
        driver = folder / "driver.py"
        driver.write_text(TASK_ON_EACH_NODE)
        os.environ["NODES"] = str(nodes)
        os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        script = _script(folder, nodes)
        compare(
            "slurm",
            lambda: _seconds(["bash", str(script), sys.executable, str(driver)]),
            lambda: _symmetric_run(folder, nodes, driver),
            PAIRS,
            peer_name="ray symmetric-run",
            aim=1.0,
        )


def _within_allocation(nodes: int) -> int:
    salloc = shutil.which("salloc")
    if salloc is None:
        raise SystemExit("there is no Slurm on this machine (no `salloc`)")
    asked = [f"--nodes={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={CPUS_A_NODE}"]
    return subprocess.call(
        [salloc, *asked, f"--mem={MEMORY_GB}G", sys.executable, *sys.argv], env=dict(os.environ)
    )


def _script(folder: Path, nodes: int) -> Path:
    node = {"cpu": CPUS_A_NODE, "memory_gb": MEMORY_GB}
    group = {"worker_nodes": node, "min_workers": nodes - 1, "max_workers": nodes - 1}
    config = {
        "sunspot:target": "slurm",
        "sunspot:cluster": {"head_node": node, "scaling_groups": [group] if nodes > 1 else []},
        "sunspot:slurm": {"folder": str(folder), "python": shlex.quote(sys.executable)},
    }
    (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
    (folder / "Pulumi.bench.yaml").write_text(yaml.safe_dump({"config": config}))
    done = subprocess.run(
        [str(BIN / "sunspot"), "manifest", "bench"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    script = folder / "bench.sh"
    script.write_text(done.stdout)
    return script


def _seconds(command: list[str], **variables: str) -> float:
    started = time.monotonic()
    done = subprocess.run(
        command,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    seconds = time.monotonic() - started
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}: {done.stdout}{done.stderr}")
    return seconds


def _symmetric_run(folder: Path, nodes: int, driver: Path) -> float:
    """Return the seconds of `ray symmetric-run`, to which the head's address must be given."""
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    srun = shutil.which("srun")
    assert srun
    address = subprocess.run(
        [srun, "--nodes=1", "--ntasks=1", "--relative=0", "hostname", "--ip-address"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[0]
    address = f"{address}:6379"
    command = [
        *(srun, f"--nodes={nodes}", f"--ntasks={nodes}", f"--cpus-per-task={CPUS_A_NODE}"),
        *(str(BIN / "ray"), "symmetric-run", "--address", address, "--min-nodes", str(nodes)),
        *("--num-cpus", str(CPUS_A_NODE), "--", sys.executable, str(driver)),
    ]
    return _seconds(
        command,
        RAY_ADDRESS=address,
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(token),
        RAY_USAGE_STATS_ENABLED="0",
    )


if __name__ == "__main__":
    main()
