"""What a VM does when it boots: the files that land on it, and the user data that carries them."""

from cloud_init.render import MAX_USER_DATA_BYTES, NodeValues, readable, render

__all__ = ["MAX_USER_DATA_BYTES", "NodeValues", "readable", "render"]
