"""What a worker is asked before it gets work: its touchfs, and what it sees at the paths of the job."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import NamedTuple

from touchfs.errors import SourceError, TouchfsError
from touchfs.names import hex_digest
from touchfs.posix.paths import shown
from touchfs.source.data import DATA
from touchfs.source.store import FileType


class Seen(NamedTuple):
    """The version of touchfs, what is at each path of data, and which of the marker files exist."""

    version: str
    data: tuple[tuple[str, str], ...]
    markers: tuple[tuple[str, bool], ...]


def ask(paths: Sequence[str], markers: Sequence[str]) -> Seen:
    """What this process sees. Of a directory only the names in it count."""
    return Seen(
        version("touchfs"),
        tuple((path, _look(path)) for path in paths),
        tuple((marker, os.path.exists(marker)) for marker in markers),
    )


def _look(path: str) -> str:
    try:
        found = DATA.stat(path)
        if found.type is not FileType.DIRECTORY:
            fingerprint = found.fingerprint
            return f"{fingerprint.size} bytes, {fingerprint.etag or fingerprint.mtime_ns}"
        names = sorted(entry.name for entry in DATA.list(path))
    except TouchfsError as error:
        return error.message
    return f"{len(names)} names, {hex_digest(chr(0).join(names).encode(errors='surrogateescape'))}"


def compare(expected: Seen, answer: Seen | Exception) -> str:
    """What is wrong with the answer of a worker, "" if nothing is."""
    if isinstance(answer, ImportError):
        return "has no touchfs: install it there"
    if not isinstance(answer, Seen):
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
        try:
            yield [
                stack.enter_context(tempfile.NamedTemporaryFile(dir=directory, prefix=".touchfs-marker-")).name
                for directory in directories
            ]
        except OSError as error:
            raise SourceError(f"cannot be written: {error.strerror}", path=str(error.filename)) from error
