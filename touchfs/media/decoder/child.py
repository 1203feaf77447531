"""The child process that decodes: it executes one request after another until its socket is closed.

    python -m touchfs.media.decoder.child SOCKET MEMORY

SOCKET is the number of a descriptor; MEMORY the address space in bytes that requests may take. Once the libraries are
loaded, the child limits itself: address space; processor time of each request; no new descriptors, so no file
and no network; no bytes written to files; no core dumps.

An operation takes the values and blobs of a request, and its content. It returns its answer, or an iterator of answers:
the request "more" asks for the next of them, and the last one has no more.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.core.extras import install_hint
from touchfs.media.decoder.messages import Message, MessageError, receive, send
from touchfs.media.decoder.request_content import ReadFailedError, RequestContent

Answer = tuple[dict[str, Any], list[Buffer]]
Operation = Callable[[Message, RequestContent], Answer | Iterator[Answer]]

# Each operation is a function of a module of its name. The extra has the libraries that it needs.
_EXTRAS = {
    "convert": "media",
    "decode": "media",
    "decode_from_start": "media",
    "demux": "media",
    "demux_video": "media",
    "encode_frames": "video",
    "render_frames": "media",
    "thumbnail": "image",
}


def run(connection: socket.socket, memory: int, others: Mapping[str, Operation] | None = None) -> None:
    """Execute requests until the other process closes the socket: for operations of this module, or for others."""
    operations = _Operations(others)
    _limit(memory)
    send(connection, {})
    while True:
        try:
            request = receive(connection)
        except (MessageError, OSError):
            return
        _limit_processor_time(request.values["seconds"])
        values, blobs = operations.execute(request, connection)
        send(connection, values, *blobs)


class _Operations:
    """The operations, or messages about libraries that are missing, and the answers that a request has left."""

    def __init__(self, others: Mapping[str, Operation] | None) -> None:
        self._damage: tuple[type[Exception], ...] = ()  # libav's errors
        self._operations: Mapping[str, Operation | str] = others or self._loaded()
        self._answers: Iterator[Answer] = iter(())

    def _loaded(self) -> Mapping[str, Operation | str]:
        with suppress(ImportError, OSError):  # an operation that needs it says so
            _import_all("av")
            import av

            self._damage = (av.FFmpegError,)
        return {name: _load(name, extra) for name, extra in _EXTRAS.items()}

    def execute(self, request: Message, connection: socket.socket) -> Answer:
        """Run a request. Errors that the recording causes are an answer, too."""
        operation = self._operations.get(request.values["operation"], self._next)
        if isinstance(operation, str):
            return {"missing": operation}, []
        try:
            answer = operation(request, RequestContent(connection, request.values.get("size", 0)))
            if isinstance(answer, tuple):
                return answer
            self._answers = answer
            return self._next()
        except FormatError as error:
            return {"error": error.message}, []
        except ReadFailedError:
            return {"error": "cannot be read"}, []
        except MemoryError:
            return {"error": "cannot be decoded: it needs too much memory"}, []
        except self._damage as error:
            return {"error": f"cannot be decoded: {getattr(error, 'strerror', error)}"}, []

    def _next(self, *_: object) -> Answer:
        for values, blobs in self._answers:
            return {**values, "more": True}, blobs
        return {}, []


def _load(name: str, extra: str) -> Operation | str:
    try:
        operation: Operation = getattr(importlib.import_module(f"touchfs.media.decoder.{name}"), name)
    except (ImportError, OSError) as error:  # OSError: the module is installed, its library is not
        what = "images" if extra == "image" else "recordings"
        return f"decoding {what} needs the {extra} extra ({error}): {install_hint(extra)}"
    return operation


def _import_all(package: str) -> None:
    """Import all modules of a package. PyAV imports some when it needs them, when files cannot be opened any more."""
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith((".__main__", ".datasets")):
            importlib.import_module(module.name)


def _limit(memory: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    for limited, value in (
        (resource.RLIMIT_AS, used + memory),
        (resource.RLIMIT_NOFILE, 0),  # open ones stay open
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limited, (value, value))


def _limit_processor_time(seconds: float) -> None:
    """Should the other process die while we are in a loop, the kernel ends us."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = math.ceil(usage.ru_utime + usage.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


if __name__ == "__main__":
    run(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
