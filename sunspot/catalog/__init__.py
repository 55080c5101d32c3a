"""Azure's VM sizes: what each has, what it costs and where it is sold."""

from sunspot.catalog.sizes import (
    Price,
    VmSize,
    cheapest,
    find,
    get,
    load,
    source,
    unlisted,
)

__all__ = ["Price", "VmSize", "cheapest", "find", "get", "load", "source", "unlisted"]
