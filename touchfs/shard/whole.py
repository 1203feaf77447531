"""Writers for a `with` block: at its end their files appear, unless an exception was raised."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, BinaryIO, Self

from touchfs.format.idx import offsets
from touchfs.posix.atomic import atomic_file


class WholeWriter:
    """Enters and leaves `_context`, set by a subclass, which creates the files and renames them into place."""

    _context: AbstractContextManager[None]

    def __enter__(self) -> Self:
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


@contextmanager
def indexed_file(path: str, starts: Sequence[int], *, create_index: bool) -> Iterator[BinaryIO]:
    """Write the file at `path` atomically, then its index if `create_index`.

    The caller may append to `starts`, the offsets of the samples in bytes, until the block ends. An old index is
    removed before its file is replaced, because readers trust any index beside a file.
    """
    with atomic_file(path) as file:
        yield file
        size = file.tell()
        with suppress(FileNotFoundError):
            os.unlink(f"{path}.idx")
    if create_index:
        with atomic_file(f"{path}.idx") as index:
            index.write(offsets.build(starts, size))
