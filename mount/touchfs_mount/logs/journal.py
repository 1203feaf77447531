"""The journal of systemd as the log of a mount in the background.

The protocol is that of systemd-cat(1), `sd_journal_stream_fd` in systemd's journal-send.c: connect to a stream socket,
send a header of seven lines, and then lines of text, each with its priority as a prefix (`<4>`, sd-daemon(3)).
"""

from __future__ import annotations

import os
import shlex
import socket

from touchfs.core.control_characters import one_line

# The socket's path, if it is not journald's own: that of a namespace (systemd.exec(5)). Empty: there is no journal.
VARIABLE = "TOUCHFS_JOURNAL"
STREAM = "/run/systemd/journal/stdout"

# A journald that hangs accepts nobody.
CONNECT_SECONDS = 1.0
# As systemd-cat has it: lines that journald has not read yet delay no one.
_BUFFER_SIZE = 8 << 20


def has_journal() -> bool:
    """True if a journal accepts our lines."""
    try:
        _connect().close()
    except OSError:
        return False
    return True


def identifier(path: str) -> str:
    """The name of the entries of the mount at `path`: `journalctl -t` finds them by it."""
    return f"touchfs:{one_line(path)}"


def reading_command(name: str) -> str:
    return f"journalctl -t {shlex.quote(name)}"


def open_stream(name: str) -> socket.socket:
    """A stream to the journal for lines with priorities. Raises OSError."""
    stream = _connect()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_SIZE)
    stream.shutdown(socket.SHUT_RD)
    # identifier, unit, priority of lines without prefix, prefixes are parsed; forward to syslog, kmsg, console
    stream.sendall(f"{name}\n\n6\n1\n0\n0\n0\n".encode())
    return stream


def _connect() -> socket.socket:
    path = os.environ.get(VARIABLE, STREAM)
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(CONNECT_SECONDS)
    try:
        stream.connect(path or "/nowhere")
        stream.settimeout(None)
    except OSError:
        stream.close()
        raise
    return stream
