"""The account of the scratch store: how many bytes it uses, kept in its lock file so that no file has to be counted.

    <crc32 of the rest: 8 hex digits> {"version": 1, "complete": 123456, "unfinished": {"<name>": 4096}}

`complete` is the size of all complete files, and `unfinished` the room that each writer has reserved. A writer enters
its room before it takes it and its file after it is complete, so a process that is killed at any moment leaves an
account that says too much, never too little. An account that is missing, cut off or damaged is no account: the files
are counted then. It is not flushed to the disk: after a power failure it may be some seconds old, until the next count.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field

_VERSION = 1


@dataclass(slots=True)
class Account:
    """Bytes of complete files, and bytes reserved by name of the unfinished file."""

    complete: int = 0
    unfinished: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes that are in use or reserved."""
        return self.complete + sum(self.unfinished.values())

    @classmethod
    def load(cls, descriptor: int) -> Account | None:
        """Read the account from the locked file; None if there is none that can be believed."""
        checksum, _, text = os.pread(descriptor, os.fstat(descriptor).st_size, 0).partition(b" ")
        if checksum != _checksum(text):
            return None
        content = json.loads(text)
        return cls(content["complete"], content["unfinished"]) if content["version"] == _VERSION else None

    def save(self, descriptor: int) -> None:
        """Replace the account in the locked file."""
        content = {"version": _VERSION, "complete": self.complete, "unfinished": self.unfinished}
        text = json.dumps(content).encode()
        data = _checksum(text) + b" " + text
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
