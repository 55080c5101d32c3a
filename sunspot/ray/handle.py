"""How to reach a Ray cluster: its addresses and its token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sunspot.errors import SunspotError


@dataclass(frozen=True, kw_only=True)
class ClusterHandle:
    """How to reach a cluster that is up.

    Attributes:
        name: the stack's name.
        target: the target's name, "local" for instance.
        head_address: HOST:PORT of the GCS, as the cluster's own nodes reach it.
        driver_address: what `ray.init(address=...)` takes on this machine; None if no driver
            reaches the cluster from here, so that only jobs can run on it.
        job_address: the URL of Ray's job API and dashboard.
        token_path: file (mode 0600) that holds the authentication token.
        monitoring: URLs by name, "Grafana" and "Prometheus", where the target runs them; a link
            to one that asks for a token ends with it, as "?token=...".
        client_address: the `ray://` address of a Ray Client server on this machine, where `up` was
            asked for one; None where there is none, or `driver_address` is one.
        driver_variables: what Ray needs in a driver's environment to reach the cluster from here,
            besides its address and token.
    """

    name: str
    target: str
    head_address: str
    driver_address: str | None
    job_address: str
    token_path: Path
    client_address: str | None = None
    monitoring: Mapping[str, str] = field(default_factory=dict)
    driver_variables: Mapping[str, str] = field(default_factory=dict)

    def token(self) -> str:
        """The token itself.

        Raises:
            SunspotError: its file cannot be read.
        """
        try:
            return self.token_path.read_text().strip()
        except OSError as error:
            raise SunspotError(
                f"cannot read the token of {self.name!r} in {self.token_path}: {error.strerror}. "
                f"Take the cluster down and start again: sunspot down {self.name}"
            ) from error

    def environment(self) -> dict[str, str]:
        """The environment variables with which `ray` commands and drivers use the cluster."""
        driver = {} if self.driver_address is None else {"RAY_ADDRESS": self.driver_address}
        return driver | {
            "RAY_API_SERVER_ADDRESS": self.job_address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_path),
            "RAY_SCHEDULER_EVENTS": "0",  # as on the nodes (start.py)
            **self.driver_variables,
        }
