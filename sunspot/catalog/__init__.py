"""Azure's VM sizes: what each holds, costs and where it is sold."""

from sunspot.catalog.sizes import VmSize, cheapest, get, load, source

__all__ = ["VmSize", "cheapest", "get", "load", "source"]
