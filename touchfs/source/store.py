"""The interface of stores of data: a store lists directories, looks at paths, and opens files.

Data is what datasets consist of: shards, their native indexes, the files beside them, lists of shards, and files that
a manifest names. All readers of data ask `touchfs.source.data`, and only that knows which kind of store a path is in.

Our own files are not data: catalogs, decompressed shards, states, logs, and whatever is being written. They need locks,
memory maps, owners and renames, so they are local files, which `touchfs.posix` handles.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, Protocol

from touchfs.core.extent import Source
from touchfs.source.fingerprint import Fingerprint


class FileType(enum.Enum):
    """The type of a path. Links are followed."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"  # a pipe, a device: reading it might wait for ever


class Status(NamedTuple):
    """The type and the fingerprint of a path, as they are now."""

    type: FileType
    fingerprint: Fingerprint


class PlainRange(NamedTuple):
    """A range of a file: its absolute path, or its URL without secrets, and the first byte and the number of bytes."""

    path: str
    offset: int
    length: int


class StoredEntry(Protocol):
    """A name in a directory. Its type may have to be looked up, so that may wait; a broken link has none."""

    @property
    def name(self) -> str:
        """The name without the directory."""
        ...

    @property
    def status(self) -> Status | None:
        """The status, if the listing has it as `Store.stat` would; then all entries have one."""
        ...

    def is_file(self) -> bool:
        """True if it is a regular file."""
        ...

    def is_dir(self) -> bool:
        """True if it is a directory."""
        ...


class StoredFile(Source, Protocol):
    """A file of a store. Its first read, or `open`, opens and verifies it; later reads verify it now and then.

    Of this machine that is once a second, at a URL once in `--revalidate` seconds.
    """

    @property
    def path(self) -> str:
        """The path, for errors; of a file in pieces, that of the last piece."""
        ...

    @property
    def size(self) -> int:
        """Size in bytes by its fingerprint. If that is not known, the file is opened, which raises as `open`."""
        ...

    @property
    def fingerprint(self) -> Fingerprint | None:
        """The fingerprint that it must have. None before the first open if none was given, and of a file in pieces."""
        ...

    @property
    def identity(self) -> str | None:
        """A text that no other bytes have, and no other version of them: what is made from them is kept under it.

        None if the version is not known; after the first read it is.
        """
        ...

    @property
    def is_verified(self) -> bool:
        """True if it was verified lately, so that `read` need not verify it again."""
        ...

    def open(self) -> None:
        """Open and verify it now, so that a missing or changed file is noticed before the first read.

        Raises ChangedError, NotFoundError or SourceError.
        """
        ...

    def close(self) -> None:
        """Release what is open; a later read opens it again."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """See `Source.read`. Raises as `open`, and SourceError if the file ends before the data does."""
        ...

    def plain_range(self, offset: int, length: int) -> PlainRange | None:
        """Where others can read these bytes: a range of a file as it is stored. None if it is compressed, or in pieces.

        Raises as `open`.
        """
        ...

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill a view of bytes with the data at `offset`: `read` into existing memory."""
        ...


class Store(Protocol):
    """A store of data. Its methods raise NotFoundError if nothing is at a path, else SourceError."""

    def list(self, directory: str) -> Sequence[StoredEntry]:
        """The entries of a directory, in any order."""
        ...

    def stat(self, path: str) -> Status:
        """The status of a path."""
        ...

    def open(self, path: str, fingerprint: Fingerprint | None = None) -> StoredFile:
        """The file at a path, which must match the fingerprint; by default, the one at its first read.

        This accesses nothing, so it never waits.
        """
        ...

    def open_beneath(self, root: str, path: str, fingerprint: Fingerprint | None = None) -> StoredFile:
        """Like `open`, for a regular file by its path relative to a directory, which neither the path nor links leave.

        This accesses nothing, either: opening the file raises SourceError if the path leads out of the root.
        """
        ...

    def stream(self, path: str) -> BinaryIO:
        """The bytes of a file from its start on, of any version. Reading them raises OSError."""
        ...
