"""Open control files with a row in the state store: those of `next`, whose reading makes a step, and those written to.

The text of an open file is made at its first read, in one transaction with the step, and stored in its row. A request
may be sent twice, to any worker, so a text is made only for an open file that has none and was not released
(`OpenTable`): repeating a read, even after the release, changes nothing.

No other operation needs a transaction for each open. Rows of released opens are deleted together, some dozens at a
time. The successor of a killed worker deletes the rows left by it when it first uses the store.

The text may also be precomputed before the first read, as an attempt of the store: the read then only commits it.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from touchfs.errors import StateError, WouldWaitError
from touchfs.store.connection import DiskFullError
from touchfs.store.open_table import OpenTable
from touchfs.store.store import StateStore, add_mount, rows_of

# Rows deleted together, and the smaller number for an idle process.
_DELETED_TOGETHER, _DELETED_WHEN_IDLE = 128, 64

_OR_UPDATE = "ON CONFLICT (id) DO UPDATE SET text = excluded.text"

Make = Callable[[sqlite3.Connection], bytes]
T = TypeVar("T")


class OpenFile(NamedTuple):
    """An open control file. `iterator` is the id of its iterator, or 0 for a file that belongs to none."""

    id: int
    iterator: int
    file: str


class Opens:
    """The open files of a mount, as used by one of its processes. `pid` is the process that serves the mount."""

    def __init__(self, store: StateStore, table: OpenTable, pid: int) -> None:
        self.store = store
        self._table = table
        self._pid = pid
        # The connection of the store on which the mount's row was last checked, and the first row id of the mount.
        self._joined = self._first = 0
        self._released: deque[int] = deque()  # several threads append and pop
        self._precomputed = -1, b""  # id and text; -1 is no id

    def open(self) -> int:
        """Return the id of a new open file. Raises FullError."""
        return self._table.open()

    def text(self, open_id: int, make: Make, *, wait: bool = True) -> bytes:
        """Return the text of an open file. The first call makes it with `make`, in the transaction that stores it.

        Returns b"" if the file was released.
        """
        self._join(wait)

        def act(connection: sqlite3.Connection) -> bytes:
            if not self._table.is_open(open_id):
                return b""
            row = self._first + open_id
            if self._table.has_row(open_id):
                found = connection.execute("SELECT text FROM open WHERE id = ?", (row,)).fetchone()
                if found is not None and found[0] is not None:
                    return bytes(found[0])
            text = make(connection)
            # A row without a text exists if the file was also written to.
            connection.execute("INSERT INTO open (id, text) VALUES (?, ?) " + _OR_UPDATE, (row, text))
            self._table.mark_row(open_id)
            return text

        return self.store.run(act, wait=wait)

    def change(self, open_id: int, act: Callable[[sqlite3.Connection, int], T]) -> T | None:
        """Call `act` in a transaction, with the row id of an open file. Returns None if the file was released."""
        self._join(True)

        def change(connection: sqlite3.Connection) -> T | None:
            if not self._table.is_open(open_id):
                return None
            row = self._first + open_id
            self._table.mark_row(open_id)
            connection.execute("INSERT OR IGNORE INTO open (id) VALUES (?)", (row,))
            return act(connection, row)

        return self.store.run(change)

    def precompute(self, open_id: int, make: Make) -> None:
        """Make the text of an open file as an attempt of the store. The same thread gets it from `precomputed`.

        Raises WouldWaitError, and the errors of `make`, without any effect.
        """
        if self._joined != self.store.connections or self._table.has_row(open_id):
            raise WouldWaitError

        def attempt(connection: sqlite3.Connection) -> bytes:
            if not self._table.is_open(open_id):
                raise WouldWaitError
            text = make(connection)
            connection.execute("INSERT INTO open (id, text) VALUES (?, ?)", (self._first + open_id, text))
            return text

        self._precomputed = open_id, self.store.attempt(attempt)

    def precomputed(self, open_id: int) -> bytes | None:
        """Commit and return a precomputed text, or return None if there is none or the store was used since."""
        precomputed_id, text = self._precomputed
        if precomputed_id != open_id or not self._table.is_open(open_id):
            return None
        self._table.mark_row(open_id)
        try:
            return text if self.store.commit() else None
        except DiskFullError:
            return None  # a thread makes it again

    def close(self, open_id: int) -> bool:
        """Release an open file in the table. Returns True if it has a row that must still be deleted."""
        if self._precomputed[0] == open_id:
            self.store.rollback()
        return self._table.release(open_id)

    def release(self, open_id: int, *, at_once: bool = True, wait: bool = True) -> None:
        """Release an open file. Its row is deleted `at_once` or, if short, later with others."""
        if self.close(open_id):
            self._released.append(open_id)
            if at_once or len(self._released) >= _DELETED_TOGETHER:
                self._delete(wait)

    def forget_written(self, open_id: int, note: Callable[[], None], *, wait: bool = True) -> None:
        """Delete the row of a closed file that may have been written to.

        `note` is called in the same transaction if an incomplete value was written.
        """
        self._join(wait)
        row = self._first + open_id

        def act(connection: sqlite3.Connection) -> None:
            found = connection.execute("SELECT pending FROM open WHERE id = ?", (row,)).fetchone()
            if found is not None and bytes(found[0]).strip():
                note()
            connection.execute("DELETE FROM written WHERE open = ?", (row,))
            connection.execute("DELETE FROM open WHERE id = ?", (row,))

        self.store.run(act, wait=wait)

    def delete_released(self) -> None:
        """Delete the rows of released files, if there are many of them. Call it when the process is idle."""
        if len(self._released) >= _DELETED_WHEN_IDLE:
            with suppress(WouldWaitError, StateError):
                self._delete(wait=False)

    def flush(self) -> None:
        """Delete the rows of all released files, before the process exits. Raises WouldWaitError."""
        if self._released:
            self._delete(wait=False)

    def _delete(self, wait: bool) -> None:
        self._join(wait)
        released: list[int] = []
        with suppress(IndexError):
            while True:
                released.append(self._released.popleft())
        rows = [(self._first + open_id,) for open_id in released]
        try:
            self.store.run(lambda connection: connection.executemany("DELETE FROM open WHERE id = ?", rows), wait=wait)
        except BaseException:
            self._released += released
            raise

    def _join(self, wait: bool) -> None:
        """Enter the mount, once for each connection: the file may have been replaced by an older copy."""
        if self._joined and self._joined == self.store.connections:
            return
        self._first = self.store.run(self._enter, wait=wait)
        self._joined = self.store.connections

    def _enter(self, connection: sqlite3.Connection) -> int:
        """Enter the mount, delete the rows of its released files, and return its first row id."""
        first, last = rows_of(add_mount(connection, self._pid))
        for table, column in (("open", "id"), ("written", "open")):
            found = connection.execute(f"SELECT {column} FROM {table} WHERE {column} BETWEEN ? AND ?", (first, last))
            gone = [(row,) for (row,) in found.fetchall() if not self._table.is_open(row - first)]
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)
        return first
