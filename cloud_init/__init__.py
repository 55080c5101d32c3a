"""What a VM does when it boots: the files that it gets, and the user data that contains them."""

from cloud_init.render import MAX_USER_DATA_BYTES, readable, render
from cloud_init.values import AzureFacts, NodeValues

__all__ = ["MAX_USER_DATA_BYTES", "AzureFacts", "NodeValues", "readable", "render"]
