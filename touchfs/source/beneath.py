"""A local file that must lie below a directory, at each open and at each verification.

It shares the pool of descriptors with all local files (`touchfs.source.local`).
"""

from __future__ import annotations

import os

from touchfs.posix.beneath import open_beneath
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.local import LocalFile

# O_NONBLOCK: a pipe must not wait for a writer.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK


class FileBeneath(LocalFile):
    """The regular file at `within`, a path relative to the directory `root`."""

    __slots__ = ("_root", "_within")

    def __init__(self, root: str, within: str, fingerprint: Fingerprint | None = None) -> None:
        super().__init__(os.path.join(root, within), fingerprint)
        self._root = root
        self._within = within

    def _open(self) -> int:
        return open_beneath(self._root, self._within, _FLAGS)

    def _stat(self) -> os.stat_result:
        descriptor = self._open()
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def __reduce__(self) -> tuple[type[FileBeneath], tuple[str, str, Fingerprint | None]]:  # type: ignore[override]
        return FileBeneath, (self._root, self._within, self.fingerprint)
