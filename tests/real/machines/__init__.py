"""Real parts for tests: a Docker engine, an image registry, a base image, nodes in namespaces.

Each is a context manager that leaves no process, mount or namespace behind. What takes long to
make is kept in `.cache/images`, which git ignores.
"""

from pathlib import Path

PROJECT = Path(__file__).parents[3]
CACHE = PROJECT / ".cache" / "images"
