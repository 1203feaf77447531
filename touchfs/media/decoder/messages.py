"""Messages between a process and its decoder: a JSON object, and binary blobs after it.

On the stream a message is the sizes of the JSON text and of all blobs (32 bits each, little-endian), the text, and the
blobs; the text lists their sizes. Nothing is pickled, so a decoder that an attacker took over can send wrong values
only, and sizes over the limits end the conversation.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from touchfs.core.extent import Buffer

# Limits of one message: its JSON text, and all its blobs.
TEXT_MAX = 1 << 20
BLOBS_MAX = 1 << 28

_SIZES = struct.Struct("<II")
_ALIGNMENT = 8  # of the first blob
_TIMEOUT_MIN = 0.001  # 0 would mean not to wait at all
# Most messages fit in the socket's buffer, so that their sender does not wait. The system may allow less.
_BUFFER = 1 << 20


class Message(NamedTuple):
    """The values of a message, which JSON can hold, and its blobs."""

    values: dict[str, Any]
    blobs: list[memoryview]


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
    views = [memoryview(blob).cast("B") if len(blob) else memoryview(b"") for blob in blobs]
    sizes = [len(view) for view in views]
    text = json.dumps({**values, "blobs": sizes}).encode()
    text = text.ljust(-(-len(text) // _ALIGNMENT) * _ALIGNMENT)
    left = [memoryview(_SIZES.pack(len(text), sum(sizes)) + text), *filter(None, views)]
    while left:  # nearly always once: each call wakes the other process
        sent = connection.sendmsg(left)
        while left and sent >= len(left[0]):
            sent -= len(left.pop(0))
        if left:
            left[0] = left[0][sent:]


def receive(connection: socket.socket, deadline: float | None = None) -> Message:
    """Receive a message, all of it until `deadline`, a time of time.monotonic.

    Raises MessageError, and OSError; TimeoutError is one.
    """
    text_size, blobs_size = _SIZES.unpack(_exactly(connection, _SIZES.size, deadline))
    if text_size > TEXT_MAX or blobs_size > BLOBS_MAX:
        raise MessageError(f"a message of {text_size} and {blobs_size} bytes")
    data = memoryview(_exactly(connection, text_size + blobs_size, deadline))
    try:
        values = json.loads(bytes(data[:text_size]))
        sizes = values.pop("blobs")
        is_valid = all(type(size) is int and size >= 0 for size in sizes) and sum(sizes) == blobs_size
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MessageError("a message that is no JSON object") from error
    if not is_valid:
        raise MessageError("a message with blobs of impossible sizes")
    edges = accumulate(sizes, initial=text_size)
    return Message(values, [data[first:last] for first, last in pairwise(edges)])


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
