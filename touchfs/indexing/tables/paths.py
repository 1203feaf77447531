"""The paths of the files of samples: beside each other, or in a directory for each sample."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence


def beside(assigned: Iterable[tuple[bytes, list[bytes]]]) -> Iterator[tuple[bytes, bytes]]:
    """Directory and name of files that are named after their sample."""
    for directory, assigned_names in assigned:
        for name in assigned_names:
            yield directory, name


def within(
    assigned: Iterable[tuple[bytes, list[bytes]]], extensions: Iterable[Iterable[str | None]]
) -> Iterator[tuple[bytes, bytes]]:
    """Directory and name of files in a directory that is named after their sample."""
    for (parent, (name,)), each in zip(assigned, extensions, strict=False):
        directory = parent + b"/" + name if parent else name
        for extension in each:
            yield directory, (extension or "").encode("utf-8", "surrogateescape")


class JoinedNames:
    """Names as one string: a day of speech has 750,000 files, whose names would take 40 MB. No name is empty."""

    __slots__ = ("_joined",)

    def __init__(self, names: Sequence[str | None]) -> None:
        self._joined = "\0".join(name or "" for name in names)

    def __iter__(self) -> Iterator[str]:
        return (match[0] for match in re.finditer("[^\0]+", self._joined))
