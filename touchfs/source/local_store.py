"""The store of local files. A link in a path is followed only if its owner may read what it leads to
(`touchfs.posix.links`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from touchfs.core.errors import NotFoundError, map_os_errors
from touchfs.posix.beneath import open_beneath
from touchfs.posix.links import check_links, open_data
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.local import LocalFile
from touchfs.source.store import FileType, Status, Store, StoredEntry

# O_NONBLOCK: a pipe must not wait for a writer.
_BENEATH_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_TYPES = {stat.S_IFREG: FileType.FILE, stat.S_IFDIR: FileType.DIRECTORY}


class _Entry:
    """An entry of a local directory. A link that cannot be followed has no type."""

    __slots__ = ("_entry", "name")
    status = None

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry
        self.name = entry.name

    def is_file(self) -> bool:
        with suppress(OSError):
            return self._entry.is_file()
        return False

    def is_dir(self) -> bool:
        with suppress(OSError):
            return self._entry.is_dir()
        return False


class FileBeneath(LocalFile):
    """The regular file at `within`, a path relative to the directory `root`: at each open and at each verification."""

    __slots__ = ("_root", "_within")

    def __init__(self, root: str, within: str, fingerprint: Fingerprint | None = None) -> None:
        super().__init__(os.path.join(root, within), fingerprint)
        self._root = root
        self._within = within

    def _open(self) -> int:
        return open_beneath(self._root, self._within, _BENEATH_FLAGS)

    def _stat(self) -> os.stat_result:
        descriptor = self._open()
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def __reduce__(self) -> tuple[type[FileBeneath], tuple[str, str, Fingerprint | None]]:  # type: ignore[override]
        return FileBeneath, (self._root, self._within, self.fingerprint)


class LocalStore:
    """Files of this machine, and those of network file systems that are mounted on it."""

    def list(self, directory: str) -> Sequence[StoredEntry]:
        with map_os_errors(directory):
            check_links(directory)
            with os.scandir(directory) as entries:
                return [_Entry(entry) for entry in entries]

    def stat(self, path: str) -> Status:
        try:
            with map_os_errors(path):
                check_links(path)
                found = os.stat(path)
        except ValueError as error:  # a NUL in the path
            raise NotFoundError("no such file or directory", path=path) from error
        return Status(_TYPES.get(stat.S_IFMT(found.st_mode), FileType.OTHER), Fingerprint.of(found))

    def open(self, path: str, fingerprint: Fingerprint | None = None) -> LocalFile:
        return LocalFile(path, fingerprint)

    def open_beneath(self, root: str, path: str, fingerprint: Fingerprint | None = None) -> FileBeneath:
        return FileBeneath(root, path, fingerprint)

    def stream(self, path: str) -> BinaryIO:
        """See `Store.stream`. It may be a pipe."""
        with map_os_errors(path):
            return open(path, "rb", opener=open_data)


if TYPE_CHECKING:
    _: type[Store] = LocalStore
