"""A file that appears whole, and after it the index of where its samples begin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO

from touchfs.format.idx import offsets
from touchfs.posix.atomic import atomic_file


@contextmanager
def indexed_file(path: str, starts: Sequence[int], *, create_index: bool) -> Iterator[BinaryIO]:
    """`starts` may grow until the end. The index of a file that was here before is removed before that file is
    replaced: readers take any index that they find for this file's.
    """
    with atomic_file(path) as file:
        yield file
        size = file.tell()
        with suppress(FileNotFoundError):
            os.unlink(f"{path}.idx")
    if create_index:
        with atomic_file(f"{path}.idx") as index:
            index.write(offsets.build(starts, size))
