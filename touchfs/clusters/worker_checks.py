"""Check a worker before it gets work: its version of touchfs, and what it sees at the paths of the job."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from typing import NamedTuple

from touchfs.core.errors import TouchfsError, map_os_errors
from touchfs.core.extras import DISTRIBUTION
from touchfs.core.names import hex_digest
from touchfs.core.urls import shown
from touchfs.source.data import Look
from touchfs.source.store import FileType, StoredEntry

# So many files are compared. More would take longer than work on a few shards, and each shard is compared again by the
# worker that gets it.
FILES_MAX = 10_000


class MachineView(NamedTuple):
    """The version of touchfs, what is at each path of data, and which of the marker files exist."""

    version: str
    data: tuple[tuple[str, str], ...]
    markers: tuple[tuple[str, bool], ...]


def view_machine(paths: Sequence[str], markers: Sequence[str]) -> MachineView:
    """Describe what this machine has at the paths, up to `FILES_MAX` files. A directory is described by the names in
    it, and by the sizes and etags of its files.
    """
    look, data, files = Look(), list[tuple[str, str]](), 0
    for path in paths:
        seen, count = _look_at(path, look, FILES_MAX - files)
        data.append((path, seen))
        files += count
        if files >= FILES_MAX:
            break
    here = tuple((marker, os.path.exists(marker)) for marker in markers)
    return MachineView(version(DISTRIBUTION), tuple(data), here)


def _look_at(path: str, look: Look, most: int) -> tuple[str, int]:
    """Describe what is at a path, comparing `most` files at most. Also returns the number of files there."""
    try:
        found = look.stat(path)
        if found.type is not FileType.DIRECTORY:
            fingerprint = found.fingerprint
            return f"{fingerprint.size} bytes, {fingerprint.etag or fingerprint.mtime_ns}", 1
        # Hidden files may be our own, or still being written.
        entries = sorted((each for each in look.list(path) if each.name[0] != "."), key=lambda each: each.name)
    except TouchfsError as error:
        return error.message, 1
    texts = [
        f"{each.name}\0{_version_of(path, each, look) if number < most else ''}" for number, each in enumerate(entries)
    ]
    return f"{len(entries)} names, {hex_digest(chr(0).join(texts).encode(errors='surrogateescape'))}", len(entries)


def _version_of(directory: str, entry: StoredEntry, look: Look) -> str:
    if not entry.is_file():
        return ""
    try:
        fingerprint = look.stat(os.path.join(directory, entry.name)).fingerprint
    except TouchfsError as error:
        return error.message
    return f"{fingerprint.size} {fingerprint.etag or ''}"


def compare(expected: MachineView, answer: MachineView | Exception) -> str:
    """Return the problem of a worker's answer, "" if there is none."""
    if isinstance(answer, ImportError):
        return "has no touchfs: install it there"
    if not isinstance(answer, MachineView):
        return f"does not answer: {answer}"
    if answer.version != expected.version:
        return f"has touchfs {answer.version}, and here it is {expected.version}"
    for (path, here), (_, there) in zip(expected.data, answer.data, strict=True):
        if here != there:
            return f"sees other data at {shown(path)}: {there}, and here it is {here}"
    for marker, exists in answer.markers:
        if not exists:
            return f"does not see {os.path.dirname(marker)}, which is written: name a directory that all machines share"
    return ""


@contextmanager
def marked(directories: Sequence[str]) -> Iterator[list[str]]:
    """The paths of empty files in these directories, for as long as workers look for them."""
    with ExitStack() as stack:
        markers = []
        for directory in directories:
            with map_os_errors(directory, "cannot be written"):
                descriptor, path = tempfile.mkstemp(dir=directory, prefix=".touchfs-marker-")
            stack.callback(_remove, path)
            os.close(descriptor)
            markers.append(path)
        yield markers


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
