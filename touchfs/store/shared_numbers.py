"""Numbers of records, shared by all processes of a mount in memory: a record gets the next number when it is added.

A record is four 64-bit integers. No record is removed, so a mount never gives a number to another record. Records and
the hash tables that find them are in a sparse file in memory, which takes 32 bytes for a record and 8 to 24 for its
place in a table: 1,000,000 records take about 50 MB once, whatever the number of workers.

The first table is for `_FIRST` records, and each further table for twice as many as the one before it. So nothing is
ever moved, and reading needs no lock: a record is complete before its number is counted, and counted before a table
names it. A process that is killed in between leaves at most a number that nobody was given.
"""

from __future__ import annotations

import mmap
import os

from touchfs.core.errors import FullError
from touchfs.posix.memory.shared import SharedFile, shared_cells

Record = tuple[int, int, int, int]

_TABLES, _FIRST = 8, 1 << 16
RECORDS_MAX = _FIRST * ((1 << _TABLES) - 1)
# Records that users other than the mounter and root add, at most: this leaves room for the mounter's.
GUESTS_MAX = 1 << 20
_WORDS, _WORD_SIZE, _SLOT_SIZE = 4, 8, 4


class SharedNumbers:
    """Records, numbered from 1 in the order in which they were added. Create it before forking."""

    def __init__(self) -> None:
        self._file = SharedFile("touchfs-numbers")
        slots = RECORDS_MAX * _WORDS * _WORD_SIZE
        os.ftruncate(self._file.descriptor, slots + 2 * RECORDS_MAX * _SLOT_SIZE)
        memory = memoryview(mmap.mmap(self._file.descriptor, 0))
        self._records = memory[:slots].cast("q")
        self._slots = memory[slots:].cast("I")
        # How many records there are, and how many of them guests added.
        self._count, self._guests = shared_cells(1, 1)
        self._seed = int.from_bytes(os.urandom(4))  # so that nobody can choose records of one hash

    def record(self, number: int) -> Record | None:
        """Return the record of a number, or None if there is none."""
        return self._record(number) if 0 < number <= self._count[0] else None

    def _record(self, number: int) -> Record:
        one, two, three, four = self._records[_WORDS * (number - 1) : _WORDS * number].tolist()
        return one, two, three, four

    def find(self, record: Record) -> int | None:
        """Return the number of a record, or None if it was not added. Does not wait."""
        slots, hashed = self._slots, hash((self._seed, *record))
        for table in range(_table_of(self._count[0]), -1, -1):
            first, last = _slots_of(table)
            place = hashed & last
            while number := slots[first + place]:  # half of the slots stay free
                if self._record(number) == record:
                    return int(number)
                place = place + 1 & last
        return None

    def add(self, record: Record, *, is_guest: bool = False) -> int:
        """Return the number of a record, adding it if it is new. Raises FullError."""
        with self._file:
            return self.find(record) or self._append(record, is_guest)

    def add_nowait(self, record: Record, *, is_guest: bool = False) -> int | None:
        """Like `add`, but return None if another thread or process is adding a record."""
        if not self._file.acquire(blocking=False):
            return None
        try:
            return self.find(record) or self._append(record, is_guest)
        finally:
            self._file.release()

    def _append(self, record: Record, is_guest: bool) -> int:
        slots, number = self._slots, self._count[0] + 1
        if number > RECORDS_MAX:
            raise FullError(f"{RECORDS_MAX} names of slices are in use: unmount and mount again")
        if is_guest:
            if self._guests[0] >= GUESTS_MAX:
                raise FullError(f"other users use {GUESTS_MAX} names of slices: the user who mounted may use more")
            self._guests[0] += 1
        for place, word in enumerate(record, _WORDS * (number - 1)):
            self._records[place] = word
        self._count[0] = number
        first, last = _slots_of(_table_of(number))
        place = hash((self._seed, *record)) & last
        while slots[first + place]:
            place = place + 1 & last
        slots[first + place] = number
        return number


def _table_of(number: int) -> int:
    return (max(number - 1, 0) // _FIRST + 1).bit_length() - 1


def _slots_of(table: int) -> tuple[int, int]:
    """The first slot of a table, and the last one of it counted from there: its slots are a power of two."""
    return 2 * _FIRST * ((1 << table) - 1), (2 * _FIRST << table) - 1
