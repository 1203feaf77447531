"""Writer of JSONL as Lhotse writes it: non-ASCII characters unescaped, gzipped if the name ends in .gz.

The bytes of a .gz are reproducible: it contains neither a time nor a name.
"""

from __future__ import annotations

import gzip
import json
import os
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, cast

from touchfs.core.errors import FormatError, SourceError, UsageError
from touchfs.shard.whole import WholeWriter, indexed_file


class JsonlWriter(WholeWriter):
    """Write one file: `with JsonlWriter("cuts.jsonl", create_index=True) as writer: writer.add(json_line({"id": "a"}))`

    `path` ends in `.jsonl` or, compressed, in `.jsonl.gz`. With `create_index`, its index is written beside it. Raises
    UsageError for an index of a compressed file.
    """

    def __init__(self, path: str | os.PathLike[str], *, create_index: bool = False) -> None:
        self.path = os.fspath(path)
        self.size = 0
        self._starts = array("q")
        self._file: BinaryIO
        self._context = self._lines(create_index)
        if create_index and self._compressed:
            raise UsageError("compressed lines have no offsets to index", path=self.path)

    @property
    def _compressed(self) -> bool:
        return self.path.endswith(".gz")

    @contextmanager
    def _lines(self, create_index: bool) -> Iterator[None]:
        with indexed_file(self.path, self._starts, create_index=create_index) as file, ExitStack() as stack:
            self._file = file
            if self._compressed:
                compressed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
                self._file = cast(BinaryIO, stack.enter_context(compressed))
            yield
            if self._file.tell() != self.size:
                raise SourceError(f"an error came while line {len(self) + 1} was written", path=self.path)

    def add(self, line: bytes) -> None:
        """Write one line, which ends in a line feed."""
        self._file.write(line)
        self._starts.append(self.size)
        self.size += len(line)

    def __len__(self) -> int:
        return len(self._starts)


def json_line(value: object, *, ascii_only: bool = False) -> bytes:
    """A value as one line of JSON, with its line feed; with `ascii_only`, other characters are escaped.

    Raises FormatError if it has no JSON form.
    """
    try:
        return json.dumps(value, ensure_ascii=ascii_only).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:  # ValueError: a lone surrogate, for one
        raise FormatError(f"cannot be written as JSON: {error}") from error
