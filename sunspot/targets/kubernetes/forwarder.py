"""Leads ports of this machine's loopback address to a cluster's head, through Kubernetes' API.

Each connection is a web socket to the API server, which hands it on to the kubelet of the head's
node (kubernetes.io, "Use Port Forwarding to Access Applications in a Cluster"). It asks which pod
is the head for each, so it outlives a head's pod. As a program it is a tunnel (targets/tunnel.py):

    python -m sunspot.targets.kubernetes.forwarder KUBECONFIG CONTEXT NAMESPACE CLUSTER LOCAL:PORT
"""

from __future__ import annotations

import contextlib
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sunspot.errors import SunspotError
from sunspot.targets.kubernetes.access import Place
from sunspot.targets.kubernetes.api import Api
from sunspot.targets.kubernetes.objects import Cluster
from sunspot.targets.kubernetes.raycluster import Names
from sunspot.targets.tunnel import LOOPBACK

PIECE = 65_536

# How soon a kubelet says that nothing listens on a port. It never says that something does.
REFUSAL_S, REFUSAL_POLL_S = 1.0, 0.02


class NoHeadError(SunspotError):
    """The cluster has no head at this moment."""


@dataclass(frozen=True)
class HeadPort:
    """A port of a head."""

    cluster: Cluster
    port: int

    def connect(self) -> Any:
        """A connection to it (`PortForward` of the package).

        Raises:
            SunspotError: there is no head, or the API server does not lead there.
        """
        from kubernetes.client import ApiClient, CoreV1Api
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import portforward

        head = self.cluster.head()
        if head is None:
            raise NoHeadError(f"no pod of {self.cluster.names.cluster} is its head")
        # A client of its own: `portforward` changes it for the length of the call.
        client = CoreV1Api(ApiClient(configuration=self.cluster.api.client.configuration))
        try:
            opened = portforward(
                client.connect_get_namespaced_pod_portforward,
                head.name,
                self.cluster.names.namespace,
                ports=str(self.port),
            )
        except (ApiException, OSError) as error:
            interrupted(error)
            raise SunspotError(
                f"{self.cluster.api.place.called} cannot forward to {head.name}: "
                f"{' '.join(str(error).split())}"
            ) from error
        _end_when_broken(opened.websocket)
        return opened

    def logged_in_again(self) -> HeadPort:
        """The same with the login that the kubeconfig has now."""
        cluster = replace(self.cluster, api=Api(self.cluster.api.place))
        return replace(self, cluster=cluster)

    def listens(self) -> bool:
        """Whether something listens on it. Raises as `connect` does."""
        opened = self.connect()
        deadline = time.monotonic() + REFUSAL_S
        try:
            while time.monotonic() < deadline:
                if opened.error(self.port):
                    return False
                time.sleep(REFUSAL_POLL_S)
        finally:
            opened.close()
        return True


def interrupted(error: BaseException) -> None:
    """Raises the interrupt that the package took for a failure of the connection (37.0)."""
    if isinstance(error.__context__, KeyboardInterrupt | SystemExit):
        raise error.__context__


def _end_when_broken(web: Any) -> None:
    """Makes a connection that breaks off end: otherwise the package leaves our side open (37.0)."""
    from websocket import WebSocketConnectionClosedException, WebSocketException

    receive = web.recv_data_frame

    def received(control_frame: bool = False) -> Any:
        try:
            return receive(control_frame)
        except (WebSocketException, OSError) as error:
            raise WebSocketConnectionClosedException(str(error)) from error

    web.recv_data_frame = received


class Server(socketserver.ThreadingTCPServer):
    """A port here that leads to a head's."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128  # a browser opens several at once
    logging_in = threading.Lock()  # once for all connections of a port

    def __init__(self, local: int, to: HeadPort) -> None:
        self.to = to
        super().__init__((LOOPBACK, local), _Connection)

    def connect(self) -> Any:
        """As `HeadPort.connect`; a login that may have expired is read from its file again."""
        before = self.to
        try:
            return before.connect()
        except NoHeadError:
            raise
        except SunspotError:
            with self.logging_in:
                again = before.logged_in_again() if self.to is before else self.to
            opened = again.connect()
            self.to = again
            return opened

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Accepts connections while the block lasts."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()


class _Connection(socketserver.BaseRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    request: socket.socket

    def handle(self) -> None:
        try:
            opened = self.server.connect()
        except SunspotError as error:
            print(error, file=sys.stderr, flush=True)
            return
        other = opened.socket(self.server.to.port)
        back = threading.Thread(target=_copy, args=(other, self.request), daemon=True)
        back.start()
        _copy(self.request, other)
        back.join()
        opened.close()


def _copy(source: Any, destination: Any) -> None:
    """Passes on what comes until either end closes, and then closes both."""
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE):
            destination.sendall(data)
    for one in (source, destination):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _load(cluster: Cluster) -> None:
    """Loads the package while nothing is served yet: two threads that import it break it (37.0)."""
    import kubernetes.stream  # noqa: F401

    _ = cluster.api.client


def main(arguments: Sequence[str]) -> None:
    """Runs until it is ended; prints what fails. The arguments are those of the module."""
    kubeconfig, context, namespace, name, *pairs = arguments
    place = Place(kubeconfig=kubeconfig, context=context, namespace=namespace)
    cluster = Cluster(Api(place), Names.of_cluster(name, namespace))
    forwards = [tuple(map(int, pair.split(":"))) for pair in pairs]
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(Server(local, HeadPort(cluster, port))) for local, port in forwards
        ]
        _load(cluster)
        for server in servers:
            stack.enter_context(server.serving())
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main(sys.argv[1:])
