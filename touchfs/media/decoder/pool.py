"""A pool of child processes that decode. Each is a fresh Python, so it shares no threads, locks or memory with us.

libav and libsndfile are C, and recordings may be hostile. So they never run in this process. A child has limits on its
address space and on its processor time, opens no files (`child.py`), and answers one request at a time over a socket.
A child that is too slow, too large or crashes is killed. That costs its one request; the next one gets a new child.
Children stay warm: a request costs two messages and no start of a process.

A child has no access to the recording. It gets the bytes that it needs with the request, or asks for ranges of a
content while it works, and this process reads them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from touchfs.core.errors import DecodeLimitError, FormatError, MissingExtraError, SourceError, TouchfsError
from touchfs.core.extent import Buffer, Content
from touchfs.limits import LIMITS
from touchfs.media.decoder.messages import Message, MessageError, connect, receive, send
from touchfs.media.decoder.request_content import RANGE_MAX

# Address space of a child besides what Python and the libraries take when it starts, which is about 200 MB.
MEMORY = 512 << 20

# Python and the libraries start in 0.3 s. A machine that is busy may need much longer.
_START_SECONDS = 60.0
# A child keeps the memory of a request for the next one, up to so many bytes. Getting it again takes 0.1 ms of 2.
_KEPT = 1 << 23
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(_KEPT),
    "MALLOC_TRIM_THRESHOLD_": str(_KEPT),
}
# Limit of all ranges of one request, in bytes, and in sizes of the content: demuxers go back a few times.
_READ_ONCE, _READ_AGAIN = 1 << 26, 8


class DecodePool:
    """Up to `children` processes that decode, for any number of threads, which wait for a free child.

    `timeout` is in seconds; `memory` is the address space in bytes that a request may take. `program` is the module
    that a child runs. The pool starts a child when it is first needed. A process that forks does not share its
    children: the copy starts its own.
    """

    def __init__(
        self,
        children: int = 2,
        timeout: float = LIMITS.decode_seconds,
        memory: int = MEMORY,
        program: str = "touchfs.media.decoder.child",
    ) -> None:
        self.timeout = timeout
        self._program = program
        self._children = children
        self._memory = memory
        self._reset()

    def request(
        self,
        operation: str,
        values: dict[str, Any],
        blobs: Sequence[Buffer] = (),
        content: Content | None = None,
        extra_seconds: float = 0.0,
    ) -> Message:
        """Run an operation of `child.py` and return its answer. The child may read ranges of `content`.

        Raises FormatError if the recording cannot be decoded; DecodeLimitError if it crashes the decoder, or needs too
        much memory, or more time than `timeout` + `extra_seconds`, without that of reading `content`; MissingExtraError
        without the libraries; SourceError if no process can be started; the errors of `content`.
        """
        with self._lease() as child:
            answer = child.request({**values, "operation": operation}, blobs, content, self.timeout + extra_seconds)
        return _checked(answer)

    def request_parts(
        self, operation: str, values: dict[str, Any], content: Content, extra_seconds: float = 0.0
    ) -> Iterator[Message]:
        """Run an operation of `child.py` that has several answers, and yield them. The time limit is for each of them.

        Raises as `request`. The child works only while the next answer is waited for, and is killed if the caller stops
        before the last one.
        """
        seconds = self.timeout + extra_seconds
        with self._lease() as child:
            answer = child.request({**values, "operation": operation}, (), content, seconds)
            while isinstance(answer, Message) and answer.values.get("more") is True:
                yield answer
                answer = child.request({"operation": "more"}, (), content, seconds)
        _checked(answer)

    def close(self) -> None:
        """End the idle children. The pool can be used again."""
        while self._idle:
            self._idle.pop().kill()

    def __enter__(self) -> DecodePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _lease(self) -> Iterator[_Child]:
        """A child for the block, once one is free. Raises SourceError."""
        if self._pid != os.getpid():
            self._reset()
        with self._slots:
            child = self._take()
            try:
                yield child
            except BaseException:
                child.kill()  # nobody knows what it would send next
                raise
            self._idle.append(child)

    def _reset(self) -> None:
        """Begin without children. After a fork those of the parent process are dropped, and go on for the parent."""
        self._slots = threading.BoundedSemaphore(self._children)
        self._idle: deque[_Child] = deque()
        self._pid = os.getpid()  # last, as a thread that reads it goes on with the new ones

    def _take(self) -> _Child:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive():
                return child
            child.kill()
        return _Child(self._memory, self._program)


def _checked(answer: Message | TouchfsError) -> Message:
    """The answer of a child, or the error that it says."""
    if isinstance(answer, TouchfsError):
        raise answer
    if (message := answer.values.get("error")) is not None:
        raise FormatError(str(message))
    if (message := answer.values.get("missing")) is not None:
        raise MissingExtraError(str(message))
    return answer


class _Child:
    def __init__(self, memory: int, program: str) -> None:
        self._connection, theirs = connect()
        command = [sys.executable, "-P", "-m", program, str(theirs.fileno()), str(memory)]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",  # it keeps no mount busy
                    env={**os.environ, "PYTHONPATH": _python_path(), **_ENVIRONMENT},
                    start_new_session=True,  # Ctrl-C is for us
                )
        except OSError as error:
            self._connection.close()
            raise SourceError(f"the decoder cannot be started: {error.strerror}") from error
        try:
            receive(self._connection, time.monotonic() + _START_SECONDS)  # it is ready
        except (MessageError, OSError) as error:
            self.kill()
            raise SourceError("the decoder does not start") from error
        except BaseException:
            self.kill()
            raise

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def request(
        self, values: dict[str, Any], blobs: Sequence[Buffer], content: Content | None, seconds: float
    ) -> Message | TouchfsError:
        """Run a request. Returns the answer, or the error of reading the content, which does the child no harm."""
        failure: TouchfsError | None = None
        deadline = time.monotonic() + seconds
        left = _READ_ONCE + _READ_AGAIN * content.size if content is not None else 0
        try:
            self._connection.settimeout(seconds)
            send(self._connection, {**values, "seconds": seconds}, *blobs)
            while True:
                answer = receive(self._connection, deadline)
                if "read" not in answer.values:
                    break
                begin = time.monotonic()
                try:
                    data = _read(content, answer.values["read"])
                    left -= len(data)
                except TouchfsError as error:
                    failure = error
                deadline += time.monotonic() - begin
                if left < 0:
                    raise MessageError("the decoder reads the same again and again")
                if failure is None:
                    send(self._connection, {}, data)
                else:
                    send(self._connection, {"failed": True})
        except TimeoutError as error:
            raise DecodeLimitError(
                f"decoding takes over {seconds:g} s, the limit: --decode-timeout raises it"
            ) from error
        except (MessageError, OSError) as error:
            raise DecodeLimitError("cannot be decoded: the decoder crashed, or took too much memory or time") from error
        return failure or answer


def _read(content: Content | None, wanted: Any) -> Buffer:
    """Read a range for a child, which is not trusted."""
    match wanted:
        case [int(offset), int(length)] if content is not None and offset >= 0 and 0 <= length <= RANGE_MAX:
            return content.read(offset, length)
    raise MessageError(f"the decoder asks for {wanted!r}")


def _python_path() -> str:
    """Modules are found where this process found them; an empty entry would be the current directory."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)
