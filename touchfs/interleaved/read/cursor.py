"""Places in the files of a partition, and cursors: places where reading is resumed, as JSON."""

from __future__ import annotations

from typing import Any, NamedTuple

from touchfs.core.errors import FormatError


class SamplePlace(NamedTuple):
    """The place after a sample: in this file of the partition, so many samples or rows are before it.

    `first_file` is the file that the sample begins in.
    """

    file: int
    number: int
    first_file: int


class BatchCursor(NamedTuple):
    """The place after a batch, and how many batches of the partition are before it."""

    file: int = 0
    number: int = 0
    batch: int = 0

    def as_json(self) -> dict[str, int]:
        """Return the cursor as JSON."""
        return self._asdict()


def parse_cursor(saved: Any, files: int) -> BatchCursor:
    """Return the cursor that is saved; None is before the first batch. Raises FormatError if it cannot be one of a
    partition of so many files.
    """
    if saved is None:
        return BatchCursor()
    if not isinstance(saved, dict) or set(saved) != set(BatchCursor._fields) or not all(map(_is_count, saved.values())):
        raise FormatError(f"not a cursor of a reader of interleaved samples: {str(saved)[:80]}")
    cursor = BatchCursor(**saved)
    if cursor.file > files or (cursor.file == files and cursor.number):
        raise FormatError(f"the cursor is in file {cursor.file} of {files}: the partition has changed")
    return cursor


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0
