"""The FUSE descriptor: a message is read from it or written to it whole, by one call.

A request that the kernel has withdrawn, because its caller was killed or interrupted, or that another worker was
quicker to take, is not there when it is read. An answer to a request that is answered already is ENOENT. So is one to a
request that the kernel has sent once more meanwhile: its number is another one then, with `RESENT` set.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from touchfs.core.extent import Buffer
from touchfs_mount.messages.answers import HEADER
from touchfs_mount.messages.requests import BUFFER_SIZE, RESENT


class EndedError(Exception):
    """The mount has ended: no request comes any more."""


class KernelConnection:
    """The end of a mount's connection that one process has. Any thread may answer."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._buffer = bytearray(BUFFER_SIZE)
        self._message = memoryview(self._buffer)

    def receive(self) -> bytes | None:
        """The next message; None if there is none now. Raises EndedError."""
        try:
            length = os.readv(self.descriptor, (self._buffer,))
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOENT, errno.EINTR):
                return None
            if error.errno in (errno.ENODEV, errno.ECONNABORTED):
                raise EndedError from error
            raise
        return bytes(self._message[:length])

    def answer(self, unique: int, parts: Sequence[Buffer]) -> bool:
        """Answer a request. False if it is answered already, or nobody waits any more. Raises OSError."""
        length = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        try:
            os.writev(self.descriptor, (HEADER.pack(HEADER.size + length, 0, unique), *parts))
        except OSError as error:
            return self._has_failed(error, unique) and self.answer(unique | RESENT, parts)
        return True

    def refuse(self, unique: int, number: int) -> bool:
        """Answer a request with an errno. False as `answer`."""
        try:
            os.write(self.descriptor, HEADER.pack(HEADER.size, -number, unique))
        except OSError as error:
            return self._has_failed(error, unique) and self.refuse(unique | RESENT, number)
        return True

    def _has_failed(self, error: OSError, unique: int) -> bool:
        """True if the request may have another number now. Raises any other error than that nobody waits."""
        if error.errno not in (errno.ENOENT, errno.ENODEV, errno.ECONNABORTED):
            raise error
        return error.errno == errno.ENOENT and not unique & RESENT
