"""Ray's errors."""


class RpcError(Exception):
    """A call was not answered in time."""


class AuthenticationError(Exception):
    """The token or the cluster is another one."""
