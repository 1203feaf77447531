"""The mounts of this mount namespace, read from /proc/self/mountinfo."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: its id (`mnt_id`), the id of the mount that it is in, device number (unique while it is mounted),
    directory of the file system (`/`, except for a bind mount of a part of it), mount point, type, source, and the
    options of the file system.
    """

    number: str
    parent: str
    device: str
    root: str
    point: str
    kind: str
    source: str
    options: str


def mounts() -> Iterator[Mount]:
    """Yield all mounts; a later one hides an earlier one at the same point. Raises OSError without /proc."""
    with open("/proc/self/mountinfo", "rb") as lines:  # as bytes: a carriage return in a path does not end a line
        for line in lines:
            before, _, after = line.partition(b" - ")
            kind, source, options = after.rstrip(b"\n").split(b" ", 2)
            yield Mount(*map(_text, (*before.split(b" ")[:5], kind, source, options)))


def reached(path: str, listed: Iterable[Mount]) -> Mount | None:
    """The mount that a program reaches at an absolute path without links. Asks no file system, as that may not answer.

    None if that mount is not listed, which in a chroot may be so.
    """
    listed = list(listed)
    numbers = {each.number for each in listed}
    covering = {}
    for each in listed:
        parent = each.parent if each.parent in numbers and each.parent != each.number else None
        covering[parent, each.point] = each
    found = None
    for directory in (*reversed(PurePosixPath(path).parents), path):
        while above := covering.get((None if found is None else found.number, str(directory))):
            found = above
    return found


def _text(field: bytes) -> str:
    """Decode a field: space, tab, newline and backslash are written as three octal digits."""
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field))
