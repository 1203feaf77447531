"""The child process that decodes: it executes one request after another until its socket is closed.

    python -m touchfs.media.decoder.child SOCKET MEMORY

SOCKET is the number of a descriptor; MEMORY the address space in bytes that requests may take. Once the libraries are
loaded, the child limits itself: address space; processor time, anew for each request; no new descriptors, so no file
and no network; no bytes written to files; no core dumps.

An operation takes the values and blobs of a request, and a file that reads the content. It returns its answer.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import resource
import socket
import sys
from collections.abc import Callable
from typing import Any

from touchfs.errors import FormatError
from touchfs.extent import Buffer
from touchfs.media.decoder.content_file import ContentFile, ReadFailedError
from touchfs.media.decoder.messages import Message, MessageError, receive, send

Answer = tuple[dict[str, Any], list[Buffer]]
Operation = Callable[[Message, ContentFile], Answer]


def run(connection: socket.socket, memory: int) -> None:
    """Execute requests until the other process closes the socket."""
    operations = _operations()
    _limit(memory)
    send(connection, {})
    while True:
        try:
            request = receive(connection)
        except (MessageError, OSError):
            return
        _limit_processor_time(request.values["seconds"])
        values, blobs = _execute(operations, request, connection)
        send(connection, values, *blobs)


def _execute(operations: dict[str, Operation] | str, request: Message, connection: socket.socket) -> Answer:
    if isinstance(operations, str):
        return {"missing": operations}, []
    import av

    try:
        return operations[request.values["operation"]](request, ContentFile(connection, request.values.get("size", 0)))
    except FormatError as error:
        return {"error": error.message}, []
    except ReadFailedError:
        return {"error": "cannot be read"}, []
    except MemoryError:
        return {"error": "cannot be decoded: it needs too much memory"}, []
    except av.FFmpegError as error:
        return {"error": f"cannot be decoded: {error.strerror}"}, []


def _operations() -> dict[str, Operation] | str:
    """The operations, or a message about a library that is missing."""
    try:
        _import_all("av")
        from touchfs.media.decoder.convert import convert
        from touchfs.media.decoder.decode import decode
        from touchfs.media.decoder.demux import demux
        from touchfs.media.decoder.demux_video import demux_video
        from touchfs.media.decoder.render_frames import render_frames
    except (ImportError, OSError) as error:  # OSError: the module is installed, its library is not
        return f"decoding recordings needs the media extra ({error}): pip install 'touchfs[media]'"
    return {
        "convert": convert,
        "decode": decode,
        "demux": demux,
        "demux_video": demux_video,
        "render_frames": render_frames,
    }


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
