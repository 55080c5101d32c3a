"""Following a job on Azure when the tunnel to the head dies: through a real sshd."""

import functools
import io

import psutil
from azure_stacks import up
from job_api import Told
from ssh_server import needs_sshd

from sunspot.ray.following import follow
from sunspot.ray.jobs import JobClient


class Out(io.StringIO):
    """Collects what is printed; calls `then` at the first of it."""

    def __init__(self, then):
        super().__init__()
        self._then = then

    def write(self, text):
        then, self._then = self._then, None
        if then:
            then()
        return super().write(text)


@needs_sshd
def test_a_tunnel_that_dies_is_replaced_and_the_log_goes_on(place, api):
    handle, _ = up(place)
    tunnel = place.target.records.tunnel("x")
    first = tunnel._read().process
    api.known.add("j", "RUNNING", log="one\n")
    api.known.tail = ["one\n"]

    def break_it():
        api.known.logs["j"] = b"one\ntwo\n"
        api.known.tail = ["one\n", "two\n"]
        api.known.states["j"] = ["RUNNING", "RUNNING", "SUCCEEDED"]
        psutil.Process(first.pid).kill()

    out, told = Out(break_it), Told()
    client = JobClient(handle, reconnect=functools.partial(place.target.handle, "x"))
    assert follow(client, "j", out, told).status == "SUCCEEDED"
    assert out.getvalue() == "one\ntwo\n"
    assert tunnel._read().process != first
    assert told[-1] == "connected again"
