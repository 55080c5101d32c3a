"""Following a job through lost connections: its log by Ray's web socket, its state by polling."""

from __future__ import annotations

import asyncio
import json
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from sunspot.errors import HeadLostError, NotUpError, SunspotError
from sunspot.ray import api_errors, job_log
from sunspot.ray.api_errors import NotFoundError, RefusedError, SilentError
from sunspot.ray.handle import ClusterHandle
from sunspot.ray.jobs import REQUEST_TIMEOUT_S, Job, JobClient, job_path

if TYPE_CHECKING:
    import aiohttp

# How often a job's state is polled: at first often, so that the end of a short job is seen at once.
FIRST_POLL_S, LAST_POLL_S = 0.1, 0.5

# How long a job API may be away: as long as workers on Azure wait for their head, so that the job
# lives on (RAY_gcs_rpc_server_reconnect_timeout_s; head_away_s in start.py).
RECONNECT_TIMEOUT_S = 600.0
FIRST_RETRY_S, LAST_RETRY_S = 0.2, 5.0

# A log up to this long is read once more when the job ends, instead of waiting the seconds that
# Ray's log stream takes to notice the end (JobManager.LOG_TAIL_SLEEP_S, 2.60).
REREAD_CHARACTERS = 1_000_000
STREAM_END_TIMEOUT_S = 30.0

# How often a log without a stream is read, and how long to wait for its end. After a restart of the
# head, its agent, which reads the logs there, comes up later than the job API.
LOG_POLL_S = 1.0
LOG_TIMEOUT_S = 60.0

# A whole log is read at each of those times: at most this share of the time goes to reading.
READING_SHARE = 0.1

# How long after a job has begun what it waits for is looked at, and how much later each next time.
LOOK_S, LOOK_FACTOR, LAST_LOOK_S = 2.0, 1.3, 15.0
LOOK_END_S = 0.5

REASON_WIDTH = 120


class Watch(Protocol):
    """What looks on while a job is followed, to tell the user what it waits for in vain."""

    def printed(self, text: str) -> None:
        """Gets each piece of what the job prints."""
        ...

    def running(self, job: Job) -> None:
        """Gets the running job from time to time, in a thread; it may ask the cluster."""
        ...


def follow(
    client: JobClient,
    job_id: str,
    out: TextIO,
    note: Callable[[str], None],
    watch: Watch | None = None,
) -> Job:
    """Prints a job's log to `out` as it grows and returns the job when it has ended.

    While the job API does not answer, it retries, and continues the log where it stopped. `note`
    gets messages for the user, `watch` looks on.

    Raises:
        SunspotError: the API was away for longer than RECONNECT_TIMEOUT_S, refused the token, or
            does not know the job.
        HeadLostError: the head is dead and will not come back.
        NotUpError: the cluster was taken down.
    """
    return _Follower(client, job_id, out, note, watch).run()


class _Follower:
    """Follows one job, over one connection after the other."""

    def __init__(
        self,
        client: JobClient,
        job_id: str,
        out: TextIO,
        note: Callable[[str], None],
        watch: Watch | None,
    ) -> None:
        self._client, self._job_id, self._note, self._watch = client, job_id, note, watch
        self._path = job_path(job_id)
        self._printer = job_log.Printer(out, watch.printed if watch else None)
        self._known = False  # whether the API has known the job
        self._undecodable = False
        self._noted_pending = False
        self._lost_since: float | None = None
        self._retry_s = FIRST_RETRY_S

    def run(self) -> Job:
        while True:
            try:
                return asyncio.run(self._over_one_connection())
            except SunspotError as error:
                if api_errors.passing(error) is None:
                    raise
                self._wait_to_reconnect(error)

    def _wait_to_reconnect(self, error: SunspotError) -> None:
        """Waits for the next try, and switches to another connection if the target has one."""
        now, minutes = time.monotonic(), RECONNECT_TIMEOUT_S / 60
        reason = textwrap.shorten(api_errors.passing(error) or "", REASON_WIDTH)
        if self._lost_since is None:
            self._lost_since, self._retry_s = now, FIRST_RETRY_S
            self._note(
                f"lost the connection to the job API ({reason}); the job goes on, trying again "
                f"for up to {minutes:g} minutes"
            )
        elif now - self._lost_since > RECONNECT_TIMEOUT_S:
            raise SunspotError(
                f"the job API of {self._client.handle.name!r} was away for {minutes:g} minutes "
                f"({reason}); job {self._job_id!r} may still run. To see what is wrong: "
                f"sunspot status {self._client.handle.name}, and follow the job again with: "
                f"sunspot logs {self._job_id} -f"
            ) from error
        time.sleep(self._retry_s)
        self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)
        if isinstance(error, SilentError):
            self._look_for_another_way()

    def _look_for_another_way(self) -> None:
        try:
            self._client.reconnect()
        except (HeadLostError, NotUpError):
            raise
        except SunspotError:
            pass  # SSH to a head that boots fails in many ways; the deadline ends them all

    async def _over_one_connection(self) -> Job:
        """Follows the job to its end. Raises an error that is `passing` if the connection ends."""
        import aiohttp

        handle = self._client.handle
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_TIMEOUT_S, sock_read=REQUEST_TIMEOUT_S
        )
        headers = {"Authorization": f"Bearer {handle.token()}"}
        async with aiohttp.ClientSession(
            handle.job_address, headers=headers, timeout=limits
        ) as session:
            return await self._to_the_end(_Api(session=session, handle=handle))

    async def _to_the_end(self, api: _Api) -> Job:
        tail: asyncio.Task[bool] | None = None
        ended, looking = asyncio.Event(), _Looking(self._watch)
        delay, started = FIRST_POLL_S, time.monotonic()
        try:
            while not (job := await self._state(api)).has_ended:
                if job.status == "RUNNING" and tail is None:
                    tail = asyncio.create_task(self._tail(api, ended))
                if tail and tail.done() and (problem := tail.exception()):
                    raise problem  # whoever reads the output is gone, for instance
                looking.at(job)
                if job.status == "PENDING" and time.monotonic() - started > 5:
                    self._say_pending(job)
                await asyncio.sleep(delay)
                delay = min(delay * 1.2, LAST_POLL_S)
            ended.set()
            is_long = self._printer.printed > REREAD_CHARACTERS and not self._undecodable
            if not (tail and is_long and await _prints_all(tail)):
                await self._print_rest(api)
        finally:
            looking.end()
            if tail:
                tail.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await tail
        return job

    async def _state(self, api: _Api) -> Job:
        """The job as it is now; an answer also shows that the connection works."""
        try:
            job = Job.from_api(await api.json(self._path))
        except NotFoundError:
            if not self._known and self._lost_since is None:
                raise
            raise SunspotError(
                f"the head came back without job {self._job_id!r}: its state was not kept. See "
                f"which jobs there are with: sunspot jobs"
            ) from None
        if self._lost_since is not None:
            self._lost_since = None
            self._note("connected again")
        self._known = True
        return job

    async def _tail(self, api: _Api, ended: asyncio.Event) -> bool:
        """Prints the log as it grows, until the job has `ended`; True if that was all of it."""
        while not ended.is_set():
            if not self._undecodable:
                closed = await self._stream(api)
                if ended.is_set():
                    return closed
            started = time.monotonic()
            with suppress(SunspotError):  # it may come yet; at the end its absence is noted
                await self._catch_up(api, final=False)
            await asyncio.sleep(max(LOG_POLL_S, (time.monotonic() - started) / READING_SHARE))
        return False

    async def _stream(self, api: _Api) -> bool:
        """Prints what Ray's log stream sends; True if Ray closed it, False if it broke.

        It sends the log from its beginning, every time it is opened (file_tail_iterator, 2.60).
        """
        import aiohttp

        take = self._printer.reading()
        try:
            # Without a heartbeat: Ray's dashboard answers no pings (proxy_websocket, 2.60).
            async with api.session.ws_connect(self._path + "/logs/tail", max_msg_size=0) as socket:
                while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                    take(message.data)
                return message.type is aiohttp.WSMsgType.CLOSE
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def _catch_up(self, api: _Api, *, final: bool) -> None:
        """Prints what the log has beyond what was printed; `final` if it will not grow."""
        take = self._printer.reading()
        if not self._undecodable:
            try:
                take((await api.json(self._path + "/logs"))["logs"])
                return
            except RefusedError as error:
                if not job_log.is_undecodable(error):
                    raise
                self._undecodable = True
        file = job_log.file_path(await api.json(self._path))
        take(job_log.decode(await api.read(file), final=final))

    async def _print_rest(self, api: _Api) -> None:
        """Prints the rest of the log of a job that has ended.

        The log may be lost with the node that the job's driver ran on: the job's result counts
        nevertheless.
        """
        deadline = time.monotonic() + LOG_TIMEOUT_S
        while True:
            try:
                return await self._catch_up(api, final=True)
            except SunspotError as error:
                reason = api_errors.passing(error)
                if reason is None:
                    raise
            if time.monotonic() > deadline:
                reason = textwrap.shorten(reason, REASON_WIDTH)
                return self._note(f"the end of the job's log cannot be read ({reason})")
            await asyncio.sleep(LOG_POLL_S)
            await self._state(api)  # raises if the connection is lost

    def _say_pending(self, job: Job) -> None:
        if not self._noted_pending:
            self._noted_pending = True
            message = " ".join(job.message.split())
            # Ray's message speaks of resources only where the job asks for some.
            thing = "a node that can hold the job" if "resources" in message else "the job to start"
            self._note(f"waiting for {thing} ({message})")


class _Looking:
    """Shows a running job to what watches it, at first often, and never for long in all."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch
        self._thread: threading.Thread | None = None
        self._wait_s = LOOK_S
        self._next = time.monotonic() + self._wait_s

    def at(self, job: Job) -> None:
        """Shows the job, unless it is too early, or the last look has not ended."""
        is_looking = self._thread is not None and self._thread.is_alive()
        if job.status != "RUNNING" or is_looking or time.monotonic() < self._next:
            return
        if self._watch is not None:
            # A daemon: for a thread of its own, asyncio would keep back the job's end and Ctrl-C.
            show = threading.Thread(target=self._show, args=(self._watch, job), daemon=True)
            self._thread = show
            show.start()

    def _show(self, watch: Watch, job: Job) -> None:
        started = time.monotonic()
        with suppress(SunspotError):  # the following itself tells what is wrong
            watch.running(job)
        now = time.monotonic()
        self._wait_s = min(self._wait_s * LOOK_FACTOR, LAST_LOOK_S)
        self._next = now + max(self._wait_s, (now - started) / READING_SHARE)

    def end(self) -> None:
        """Lets a look end that does not take long, so that it says nothing after the job's end."""
        if self._thread is not None:
            self._thread.join(LOOK_END_S)


@dataclass(frozen=True, kw_only=True)
class _Api:
    """The job API over one connection; what it answers is checked."""

    session: aiohttp.ClientSession
    handle: ClusterHandle

    async def read(self, path: str) -> bytes:
        import aiohttp

        try:
            async with self.session.get(path) as response:
                status, body = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise SilentError(self.handle, error) from error
        api_errors.check(status, body.decode(errors="replace"), self.handle)
        return body

    async def json(self, path: str) -> Any:
        body = await self.read(path)
        try:
            return json.loads(body)
        except ValueError as error:
            raise SilentError(self.handle, error) from error


async def _prints_all(tail: asyncio.Task[bool]) -> bool:
    """Waits until Ray notices that the job has ended; whether the log was printed to its end."""
    await asyncio.wait({tail}, timeout=STREAM_END_TIMEOUT_S)
    return tail.done() and tail.exception() is None and tail.result()
