"""The registry of what was looked up and is not listed: places below spans of `slices/`, and plans of frames below
segments. That of a mount is `touchfs.store.shared_numbers`."""

from __future__ import annotations

import threading
from typing import Protocol

from touchfs.tree.open_shards import WouldBlockError

# A span has start, end, and 1 for samples or 0 for nanoseconds; and shard id and row as in an inode number. A plan of
# frames has millionths of a frame a second, 0, and `FRAMES_RECORD`; and the same.
Record = tuple[int, int, int, int]
FRAMES_RECORD = 3


class Numbers(Protocol):
    """The registry. It numbers records from 1 on, equally in all processes of a mount. Only `add` may wait."""

    def find(self, record: Record) -> int | None:
        """The number of a record, or None if it was not added."""
        ...

    def record(self, number: int) -> Record | None:
        """The record of a number, or None if the number is not in use."""
        ...

    def add(self, record: Record, *, is_guest: bool = False) -> int:
        """The number of a record; adds it if it is new.

        Raises FullError if the registry is full. A guest, a user who does not own the mount, may fill only a part.
        """
        ...

    def add_nowait(self, record: Record, *, is_guest: bool = False) -> int | None:
        """Like `add`, but return None where that would have to wait."""
        ...


class LocalNumbers:
    """A registry (`Numbers`) for a single process, without a limit."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._numbers: dict[Record, int] = {}
        self._lock = threading.Lock()

    def find(self, record: Record) -> int | None:
        return self._numbers.get(record)

    def record(self, number: int) -> Record | None:
        return self._records[number - 1] if 0 < number <= len(self._records) else None

    def add(self, record: Record, *, is_guest: bool = False) -> int:
        with self._lock:
            if record not in self._numbers:
                self._records.append(record)
                self._numbers[record] = len(self._records)
        return self._numbers[record]

    add_nowait = add


class NonblockingNumbers:
    """The same registry for a thread that must not wait for others: adding raises WouldBlockError where it would."""

    def __init__(self, numbers: Numbers) -> None:
        self.find = numbers.find
        self.record = numbers.record
        self.add_nowait = numbers.add_nowait

    def add(self, record: Record, *, is_guest: bool = False) -> int:
        number = self.add_nowait(record, is_guest=is_guest)
        if number is None:
            raise WouldBlockError
        return number
