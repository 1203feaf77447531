"""A file of the scratch store as a source."""

from __future__ import annotations

import os

from touchfs.source.local import LocalFile
from touchfs.source.scratch.store import ScratchFile


class ScratchSource(LocalFile):
    """A locked file of the scratch store. It can be read even if somebody removes it from the store."""

    __slots__ = ("_file",)

    def __init__(self, file: ScratchFile) -> None:
        super().__init__(file.path)
        self._file = file

    def _open(self) -> int:
        return os.dup(self._file.fileno())

    def _stat(self) -> os.stat_result:
        return os.fstat(self._file.fileno())
