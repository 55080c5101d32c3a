"""Ray's errors."""


class RpcError(Exception):
    """A call was not answered in time."""
