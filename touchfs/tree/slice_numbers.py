"""The registry of what was looked up and is not listed: places below spans of `slices/`, windows of frames and tokens,
and plans of frames below segments. That of a mount is `touchfs.store.shared_numbers`."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from touchfs.core.errors import ChangedError
from touchfs.tree.inode import ROW_BITS, ROW_MASK, pack, unpack
from touchfs.tree.open_shards import WouldBlockError

# A span has start, end, and 1 for samples or 0 for nanoseconds; and shard id and row as in an inode number. A plan of
# frames has millionths of a frame a second, 0, and `FRAMES_RECORD`; and the same. Windows have a plan of two numbers,
# their own third one, shard id and number of a block.
Record = tuple[int, int, int, int]
WINDOWS_RECORD, FRAMES_RECORD, TOKENS_RECORD = 2, 3, 4
_BLOCK_BITS = 8
_BLOCK = 1 << _BLOCK_BITS


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


class PlannedItem(NamedTuple):
    """An item below a plan, which is two numbers. Without an item it is the directory of a shard, or with the shard id
    0 that of the plan.
    """

    plan: tuple[int, int]
    shard_id: int = 0
    item: int | None = None


class PlannedInodes:
    """Inode numbers in a `view` of numbered items below plans: a number of the registry, in the place of the row,
    stands for a block of items. `kind` is the third number of their records.
    """

    def __init__(self, numbers: Numbers, view: int, kind: int) -> None:
        self._numbers = numbers
        self._view = view
        self._kind = kind

    def nonblocking(self) -> PlannedInodes:
        """The same numbers for a thread that must not wait for others."""
        return PlannedInodes(NonblockingNumbers(self._numbers), self._view, self._kind)

    def inode(self, place: PlannedItem, *, is_guest: bool = False) -> int:
        """The inode number of a place. Adds its block to the registry if it is new. Raises FullError."""
        plan, shard_id, item = place
        block, below = (0, 0) if item is None else (item // _BLOCK + 1, item % _BLOCK)
        record = *plan, self._kind, shard_id << ROW_BITS | block
        number = self._numbers.find(record) or self._numbers.add(record, is_guest=is_guest)
        return pack(self._view, shard_id, number << _BLOCK_BITS | below)

    def place(self, inode: int) -> PlannedItem:
        """The place of an inode number. Raises ChangedError for one that nobody was given."""
        _, shard_id, row = unpack(inode)
        record = self._numbers.record(row >> _BLOCK_BITS)
        if record is None or record[2] != self._kind or record[3] >> ROW_BITS != shard_id:
            raise ChangedError("this inode is not of this mount")
        block, below = record[3] & ROW_MASK, row % _BLOCK
        return PlannedItem(record[:2], shard_id, (block - 1) * _BLOCK + below if block else None)
