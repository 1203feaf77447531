"""Writer of ZIP archives of samples: `<key>.<extension>` one after the other, stored as they are.

Readers find a member without what comes before it, and serve it as a range of the archive. Times are the earliest that
the format has, so that equal samples make equal archives.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from touchfs.containers.tar.writer import check_name
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.posix.atomic import atomic_file
from touchfs.shard.whole import WholeWriter
from touchfs.source.archived.directory import DIRECTORY_MAX, plain_name

# Bytes of the directory that a member takes besides its name: its entry, and what ZIP64 adds.
_ENTRY = 46 + 28
_MODE = stat.S_IFREG | 0o644
# ZIP's own times begin here.
_TIME = (1980, 1, 1, 0, 0, 0)


class ZipWriter(WholeWriter):
    """`with ZipWriter("000000.zip") as writer: writer.add("a/0001", {"flac": audio, "json": metainfo})`

    `path` is that of the archive, which appears there when the block ends.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._samples = 0
        self._directory = 0
        self._archive: zipfile.ZipFile
        self._context = self._zip()

    @contextmanager
    def _zip(self) -> Iterator[None]:
        with atomic_file(self.path) as file, zipfile.ZipFile(file, "w") as self._archive:
            yield

    @property
    def is_full(self) -> bool:
        """True if the archive's directory has half of the size that readers take."""
        return 2 * self._directory >= DIRECTORY_MAX

    def add(self, key: str, fields: Mapping[str, Buffer]) -> None:
        """Add one sample: its `key`, and its data by extension in `fields`.

        Raises FormatError, and writes nothing of it, if it cannot be stored.
        """
        if not fields:
            raise FormatError("a sample without fields leaves no trace in an archive", path=self.path, key=key)
        for extension in fields:
            check_name(key, extension, self.path, "a ZIP archive")
            if not _is_readable(f"{key}.{extension}"):
                raise FormatError("a ZIP archive cannot store a sample with this key", path=self.path, key=key)
        for extension, data in fields.items():
            member = zipfile.ZipInfo(f"{key}.{extension}", _TIME)
            member.external_attr = _MODE << 16
            self._archive.writestr(member, memoryview(data).cast("B"))
            self._directory += _ENTRY + len(member.filename.encode())
        self._samples += 1

    def __len__(self) -> int:
        return self._samples


def _is_readable(name: str) -> bool:
    """True if readers of archives take a name, which is UTF-8 in them."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return plain_name(name) != ""
