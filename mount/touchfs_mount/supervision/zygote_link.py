"""The supervisor's end of its conversation with the zygote. `daemon.zygote` lists the commands and events."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass

import trio

MESSAGE_SIZE = 65536


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """The zygote has forked worker `number`."""

    number: int
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerUnforked:
    """The system has forked no worker `number`."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """Worker `number` has exited. `status` is as in `os.waitstatus_to_exitcode`: negative for a signal."""

    number: int
    status: int


class ZygoteLink:
    """Sends commands to the zygote, and receives its events.

    Nothing here fails when the zygote is gone: the events end, and the command that waits for a result gets an error.
    """

    def __init__(self, end: socket.socket) -> None:
        self._forks: dict[int, float] = {}  # when each worker was requested that has not started
        self._socket = trio.socket.from_stdlib_socket(end)
        self._result_sender, self._result_receiver = trio.open_memory_channel[str | None](1)

    async def fork(self, number: int, *, clone: bool) -> None:
        """Request a worker. `WorkerStarted` or `WorkerUnforked` follows."""
        self._forks[number] = trio.current_time()
        await self._send({"fork": number, "clone": clone})

    @property
    def silent_seconds(self) -> float:
        """For how long the zygote has not answered the request of a worker; 0 if it has answered all."""
        return trio.current_time() - min(self._forks.values(), default=trio.current_time())

    async def end(self) -> None:
        """Tell the zygote that the mount has ended as intended."""
        await self._send({"end": True})

    async def run_command(self, command: str) -> str | None:
        """Send a command, and wait for its result: None, or an error message. Run one at a time."""
        await self._send({command: True})
        try:
            return await self._result_receiver.receive()
        except trio.EndOfChannel:
            return "the zygote is gone"

    async def next_event(self) -> WorkerStarted | WorkerUnforked | WorkerEnded | None:
        """The next event about a worker, or None if the zygote is gone."""
        while message := await self._receive():
            match json.loads(message):
                case {"started": number, "pid": pid}:
                    self._forks.pop(number, None)
                    return WorkerStarted(number, pid)
                case {"unforked": number, "error": reason}:
                    self._forks.pop(number, None)
                    return WorkerUnforked(number, reason)
                case {"ended": number, "status": status}:
                    return WorkerEnded(number, status)
                case {"reloaded": error} | {"invalidated": error}:
                    await self._result_sender.send(error)
        self._result_sender.close()
        return None

    async def _send(self, command: dict[str, object]) -> None:
        with contextlib.suppress(OSError):  # the zygote is gone: `next_event` returns None
            await self._socket.send(json.dumps(command).encode())

    async def _receive(self) -> bytes:
        """The next message of the zygote; empty if it is gone. `recv` raises OSError if it left messages unread."""
        try:
            return bytes(await self._socket.recv(MESSAGE_SIZE))
        except OSError:
            return b""
