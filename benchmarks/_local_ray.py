"""Ray on this machine, for benchmarks that are drivers themselves, and the workloads' folder."""

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parent.parent / "workloads"


@contextmanager
def own_ray_settings() -> Iterator[str]:
    """Set Ray's environment variables and yield a folder for Ray, with its own token in it.

    Ray reads these variables when it is imported, so enter this before you import Ray.
    """
    with tempfile.TemporaryDirectory(prefix="sunspot-bench-") as folder:
        token = Path(folder) / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        os.environ |= {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray's workers have a niceness of 15 by default; a plain process has 0.
            "RAY_worker_niceness": "0",
        }
        yield f"{folder}/ray"


@contextmanager
def ray_with(cpus: int, folder: str) -> Iterator[None]:
    """Run Ray on this machine, with this many CPUs, while the block runs."""
    import ray

    ray.init(address="local", num_cpus=cpus, include_dashboard=False, _temp_dir=folder)
    try:
        yield
    finally:
        ray.shutdown()
