"""What is mounted in this mount namespace, from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: its number (`mnt_id`), what is mounted, and the device number, which no other mount has meanwhile."""

    number: str
    device: str
    point: str
    kind: str
    source: str


def mounts() -> Iterator[Mount]:
    """All mounts, a later one over an earlier one. Raises OSError where there is no /proc."""
    with open("/proc/self/mountinfo", "rb") as lines:  # as bytes: a carriage return in a path ends no line
        for line in lines:
            before, _, after = line.partition(b" - ")
            number, _, device, _, point, *_ = before.split(b" ")
            kind, source, *_ = after.split(b" ")
            yield Mount(*map(_text, (number, device, point, kind, source)))


def _text(field: bytes) -> str:
    """Space, tab, newline and backslash are written as three octal digits."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))
