"""Serves a mount's numbers by HTTP: `GET /metrics`, and nothing else. The supervisor runs this, never a worker.

At a port of the loopback addresses a request must name this machine as its host (`touchfs.serve.host_header`). A client
gets one answer, within `REQUEST_SECONDS`, and at most `CONNECTIONS_MAX` are served at once. If all places are taken,
the client goes that has been longest without sending its request; if all have sent theirs, the kernel lets others wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import h11
import trio

from touchfs.serve.host_header import is_own_host
from touchfs_mount.numbers.sockets import MetricsSockets
from touchfs_mount.numbers.text import CONTENT_TYPE

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 16
REQUEST_SECONDS = 5.0
HEAD_MAX = 8192
# The time for a client to close its end. If we closed first with bytes unread, it might lose the answer.
_CLOSE_SECONDS = 1.0
_PIECE = 4096

_METHODS = b"GET", b"HEAD"


class MetricsServer:
    """Answers requests at listening sockets with the text that `text` returns. `descriptors` are those of the sockets,
    which no other process may have open.
    """

    def __init__(self, sockets: MetricsSockets, text: Callable[[], bytes]) -> None:
        self._checks_host = sockets.checks_host
        self.descriptors = [listener.fileno() for listener in sockets.listeners]
        self._listeners = sockets.listeners
        self._text = text
        self._free = trio.Semaphore(CONNECTIONS_MAX)
        # Of the clients that have not sent their requests yet, in the order of their arrival.
        self._silent: dict[trio.CancelScope, None] = {}

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for listener in self._listeners:
                opened = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
                nursery.start_soon(self._accept, opened, nursery)

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        while True:
            try:
                stream = await listener.accept()
            except OSError as error:  # for example no descriptor is left
                log.warning("a connection to the metrics fails: %s", error)
                await trio.sleep(1)
                continue
            if not self._free.value and self._silent:
                oldest = next(iter(self._silent))
                del self._silent[oldest]
                oldest.cancel()
            await self._free.acquire()
            nursery.start_soon(self._serve, stream)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            with trio.move_on_after(REQUEST_SECONDS):
                async with stream:
                    await self._answer(stream)
        except trio.BrokenResourceError:
            pass  # the client is gone
        except Exception:  # no request may end the mount
            log.exception("a request for the metrics failed")
        finally:
            self._free.release()

    async def _answer(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
        head_only = False
        try:
            request = await self._request(connection, stream)
            if request is None:
                return
            head_only = request.method == b"HEAD"
            status, body = self._respond(request)
        except h11.RemoteProtocolError as error:
            status, body = error.error_status_hint, b"this is no request that can be answered\n"
        headers = [
            ("Content-Type", CONTENT_TYPE),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *([("Allow", "GET, HEAD")] if status == 405 else []),
        ]
        events: list[h11.Event] = [h11.Response(status_code=status, headers=headers)]
        if not head_only:
            events.append(h11.Data(data=body))
        pieces = [connection.send(event) or b"" for event in (*events, h11.EndOfMessage())]
        await stream.send_all(b"".join(pieces))
        with trio.move_on_after(_CLOSE_SECONDS):
            await stream.send_eof()
            while await stream.receive_some(_PIECE):
                pass

    async def _request(self, connection: h11.Connection, stream: trio.SocketStream) -> h11.Request | None:
        """Like `_receive`; None also if the client must make room for another one."""
        with trio.CancelScope() as silence:
            self._silent[silence] = None
            try:
                return await _receive(connection, stream)
            finally:
                self._silent.pop(silence, None)
        return None

    def _respond(self, request: h11.Request) -> tuple[int, bytes]:
        hosts = [value for name, value in request.headers if name == b"host"]
        if self._checks_host and not (len(hosts) == 1 and is_own_host(hosts[0].decode("latin-1"), ("localhost",))):
            return 400, b"the host of a request must be localhost or an address\n"
        if request.target.partition(b"?")[0] != b"/metrics":
            return 404, b"only /metrics is here\n"
        if request.method not in _METHODS:
            return 405, b"only GET and HEAD are answered\n"
        return 200, self._text()


async def _receive(connection: h11.Connection, stream: trio.SocketStream) -> h11.Request | None:
    """The request of a client; None if it sends none. Raises h11.RemoteProtocolError."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await stream.receive_some(_PIECE))
