"""This process as a driver: its environment, and the settings that Ray reads only once."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

RAY_CLIENT = "ray://"
CONNECT_ATTEMPTS = 3


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables within the block, and removes RAY_AUTH_TOKEN, which would override them."""
    names = {*variables, "RAY_AUTH_TOKEN"}
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextlib.contextmanager
def without_scheduler_events() -> Iterator[None]:
    """Keeps Ray from printing, each second, that a task on a full cluster cannot be scheduled.

    The variable for that, RAY_SCHEDULER_EVENTS, is read when Ray is imported (2.60): too early.
    """
    from ray._private import ray_constants

    before = ray_constants.AUTOSCALER_EVENTS
    ray_constants.AUTOSCALER_EVENTS = 0
    try:
        yield
    finally:
        ray_constants.AUTOSCALER_EVENTS = before


def reload_authentication() -> None:
    """Makes Ray read RAY_AUTH_MODE and the token again.

    Ray caches both: the mode when its library is loaded, the token when it is first used
    (ray/_private/authentication/authentication_token_setup.py, 2.60).
    """
    from ray import _raylet

    raylet: Any = _raylet  # shipped without types
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def connect(address: str, *, forward_logs: bool) -> None:
    """`ray.init` at an address; through Ray Client, a failed connection is tried again.

    For each driver the head starts a server of its own, which a busy head fails to do within Ray's
    30 s (ray/util/client/server/proxier.py, CHECK_CHANNEL_TIMEOUT_S, 2.60).

    Raises:
        ConnectionError: the last attempt failed too.
        RuntimeError: Ray refused, for instance because the versions differ.
    """
    import ray

    attempts = CONNECT_ATTEMPTS if address.startswith(RAY_CLIENT) else 1
    for attempts_left in reversed(range(attempts)):
        try:
            ray.init(address=address, log_to_driver=forward_logs, logging_level=logging.WARNING)
            return
        except ConnectionError:
            if not attempts_left:
                raise
            ray.shutdown()
