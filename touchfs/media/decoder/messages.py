"""Messages between a process and its decoder: a JSON object, and binary blobs after it.

On the stream a message is the size of the JSON text (32 bits, little-endian), the text, and the blobs; the text lists
their sizes. Nothing is pickled, so a decoder that an attacker took over can send wrong values only, and sizes over the
limits end the conversation.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any, NamedTuple

from touchfs.extent import Buffer

# Limits of one message: its JSON text, and all its blobs.
TEXT_MAX = 1 << 20
BLOBS_MAX = 1 << 28

_SIZE = struct.Struct("<I")
_SMALL = 1 << 16
_TIMEOUT_MIN = 0.001  # 0 would mean not to wait at all
# Most messages fit in the socket's buffer, so that their sender does not wait. The system may allow less.
_BUFFER = 1 << 20


class Message(NamedTuple):
    """The values of a message, which JSON can hold, and its blobs."""

    values: dict[str, Any]
    blobs: list[bytearray]


class MessageError(Exception):
    """The other process is gone, or what it sends is not a message."""


def connect() -> tuple[socket.socket, socket.socket]:
    """A pair of sockets for messages."""
    pair = socket.socketpair()
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
    return pair


def send(connection: socket.socket, values: dict[str, Any], *blobs: Buffer) -> None:
    """Send a message. Raises OSError; TimeoutError is one."""
    views = [memoryview(blob) for blob in blobs]
    text = json.dumps({**values, "blobs": [view.nbytes for view in views]}).encode()
    # One call for all that is small: each call wakes the other process.
    small = [_SIZE.pack(len(text)), text]
    for view in views:
        if view.nbytes <= _SMALL:
            small.append(bytes(view))
            continue
        connection.sendall(b"".join(small))
        connection.sendall(view)
        small.clear()
    connection.sendall(b"".join(small))


def receive(connection: socket.socket, deadline: float | None = None) -> Message:
    """Receive a message, all of it until `deadline`, a time of time.monotonic.

    Raises MessageError, and OSError; TimeoutError is one.
    """
    (size,) = _SIZE.unpack(_exactly(connection, _SIZE.size, deadline))
    if size > TEXT_MAX:
        raise MessageError(f"a message of {size} bytes")
    try:
        values = json.loads(_exactly(connection, size, deadline))
        sizes = values.pop("blobs")
        total = sum(sizes)
        is_valid = all(type(size) is int and size >= 0 for size in sizes) and total <= BLOBS_MAX
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError("a message that is no JSON object") from error
    if not is_valid:
        raise MessageError("a message with blobs of impossible sizes")
    return Message(values, [_exactly(connection, size, deadline) for size in sizes])


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    filled = 0
    while filled < size:
        if deadline is not None:
            connection.settimeout(max(deadline - time.monotonic(), _TIMEOUT_MIN))
        count = connection.recv_into(view[filled:])
        if not count:
            raise MessageError("the other process is gone")
        filled += count
    return data
