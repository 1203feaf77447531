"""The mounts of this mount namespace, read from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: its id (`mnt_id`), device number (unique while it is mounted), mount point, type, source, and the
    options of the file system.
    """

    number: str
    device: str
    point: str
    kind: str
    source: str
    options: str


def mounts() -> Iterator[Mount]:
    """Yield all mounts; a later one hides an earlier one at the same point. Raises OSError without /proc."""
    with open("/proc/self/mountinfo", "rb") as lines:  # as bytes: a carriage return in a path does not end a line
        for line in lines:
            before, _, after = line.partition(b" - ")
            number, _, device, _, point, *_ = before.split(b" ")
            kind, source, options = after.rstrip(b"\n").split(b" ", 2)
            yield Mount(*map(_text, (number, device, point, kind, source, options)))


def _text(field: bytes) -> str:
    """Decode a field: space, tab, newline and backslash are written as three octal digits."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))
