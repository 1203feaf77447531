"""Writer of tars of samples: `<key>.<extension>` one after the other, byte for byte as Python's tarfile writes them.

Times and owners are 0, so that equal samples make equal tars. The index has the offset of each sample, then the size.
It is Lhotse's if each sample has two members, else that of NeMo and Megatron-Energon.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

from touchfs.containers.tar.layout.header import build_header, end_of_archive, padding
from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer
from touchfs.shard.whole import WholeWriter, indexed_file


class TarWriter(WholeWriter):
    """`with TarWriter("000000.tar") as writer: writer.add("a/0001", {"flac": audio, "json": metainfo})`

    `path` is that of the tar, which appears there when the block ends; with `create_index`, its index is written, too.
    """

    def __init__(self, path: str | os.PathLike[str], *, create_index: bool = False) -> None:
        self.path = os.fspath(path)
        self.size = 0
        self._starts = array("q")
        self._file: BinaryIO
        self._context = self._tar(create_index)

    @contextmanager
    def _tar(self, create_index: bool) -> Iterator[None]:
        with indexed_file(self.path, self._starts, create_index=create_index) as self._file:
            yield
            if self._file.tell() != self.size:
                raise SourceError(f"an error came while sample {len(self)} was written", path=self.path)
            self._file.write(end_of_archive(self.size))

    def add(self, key: str, fields: Mapping[str, Buffer]) -> None:
        """Add one sample: its `key`, and its data by extension in `fields`.

        Raises FormatError, and writes nothing of it, if it cannot be stored.
        """
        if not fields:
            raise FormatError("a sample without fields leaves no trace in a tar", path=self.path, key=key)
        parts: list[Buffer] = []
        for extension, data in fields.items():
            check_name(key, extension, self.path, "a tar")
            size = memoryview(data).nbytes
            parts += build_header(f"{key}.{extension}", size), data, padding(size)
        self._file.writelines(parts)
        self._starts.append(self.size)
        self.size += sum(memoryview(part).nbytes for part in parts)

    def __len__(self) -> int:
        return len(self._starts)


def check_name(key: str, extension: str, path: str, kind: str) -> None:
    """Raise FormatError unless an archive can store the name, it splits into key and extension again, and extracts
    safely. The error names the `path` and the `kind` of archive, as `a tar`.
    """
    *directories, name = key.split("/")
    if not name or "\0" in key or ".." in directories:
        raise FormatError(f"{kind} cannot store a sample with this key", path=path, key=key)
    if not extension or "/" in extension or "\0" in extension:
        raise FormatError(f"a field cannot have the extension {extension!r}", path=path, key=key)
