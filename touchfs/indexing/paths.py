"""Where the files of samples are: beside each other, or in a directory of each sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def beside(assigned: Iterable[tuple[bytes, list[bytes]]]) -> Iterator[tuple[bytes, bytes]]:
    """Directory and name of files that are named after their sample."""
    for directory, assigned_names in assigned:
        for name in assigned_names:
            yield directory, name


def within(
    assigned: Iterable[tuple[bytes, list[bytes]]], extensions: Iterable[tuple[str | None, ...]]
) -> Iterator[tuple[bytes, bytes]]:
    """Directory and name of files in a directory that is named after their sample."""
    for (parent, (name,)), each in zip(assigned, extensions, strict=False):
        directory = parent + b"/" + name if parent else name
        for extension in each:
            yield directory, (extension or "").encode("utf-8", "surrogateescape")
