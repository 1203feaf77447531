"""The opens of control files that the state store takes part in: those that step, and those that are written.

The text of an open is made at its first read, in one transaction with the step, and kept in its row. Requests may be
sent twice, to any worker, so a text is made only for an open that has none and was not released (`OpenTable`): a read
that runs again, even after the release, changes nothing.

Only that is a transaction of its own. Rows of what was released are deleted together, some dozens at a time. What a
killed worker had not deleted yet, the one that takes its place deletes when it first uses the store.

The text may be made ahead of the first read, too, as an attempt of the store: the read then only commits it.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from touchfs.errors import StateError
from touchfs.store.connection import DiskFullError
from touchfs.store.database import WouldWaitError
from touchfs.store.open_table import OpenTable
from touchfs.store.store import StateStore, add_mount, rows_of

# So many rows are deleted together; while there is nothing else to do, so few.
_DELETED_TOGETHER, _DELETED_WHEN_IDLE = 128, 64

_OR_UPDATE = "ON CONFLICT (id) DO UPDATE SET text = excluded.text"

Make = Callable[[sqlite3.Connection], bytes]
T = TypeVar("T")


class OpenFile(NamedTuple):
    """An open of a control file, of an iterator or, if that is 0, of none."""

    id: int
    iterator: int
    file: str


class Opens:
    """Those of one process of the mount that the process `pid` serves."""

    def __init__(self, store: StateStore, table: OpenTable, pid: int) -> None:
        self.store = store
        self._table = table
        self._pid = pid
        # For which connection of the store the mount is known to be there, and its first row.
        self._joined = self._first = 0
        self._released: deque[int] = deque()  # several threads add to it and take from it
        self._ahead = -1, b""  # of no open

    def open(self) -> int:
        """The id of a new open. Raises FullError."""
        return self._table.open()

    def text(self, open_id: int, make: Make, *, wait: bool = True) -> bytes:
        """Return what `make` makes at the first read, in the same transaction, and the same ever after; nothing if it
        was released.
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
            # There may be a row without a text: the file is open to be written, too.
            connection.execute("INSERT INTO open (id, text) VALUES (?, ?) " + _OR_UPDATE, (row, text))
            self._table.mark_row(open_id)
            return text

        return self.store.run(act, wait=wait)

    def change(self, open_id: int, act: Callable[[sqlite3.Connection, int], T]) -> T | None:
        """Act in a transaction, with the id of the open's row. Not if it was released: None."""
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
        """Make the text as an attempt of the store, for the thread that asks `precomputed` then.

        Raises WouldWaitError, and what `make` raises; it is then as if nothing was tried.
        """
        if self._joined != self.store.connections or self._table.has_row(open_id):
            raise WouldWaitError

        def attempt(connection: sqlite3.Connection) -> bytes:
            if not self._table.is_open(open_id):
                raise WouldWaitError
            text = make(connection)
            connection.execute("INSERT INTO open (id, text) VALUES (?, ?)", (self._first + open_id, text))
            return text

        self._ahead = open_id, self.store.attempt(attempt)

    def precomputed(self, open_id: int) -> bytes | None:
        """Return the text at the first read, if it was made ahead and nothing else was done with the store since."""
        ahead, text = self._ahead
        if ahead != open_id or not self._table.is_open(open_id):
            return None
        self._table.mark_row(open_id)
        try:
            return text if self.store.commit() else None
        except DiskFullError:
            return None  # it is made once more, by a thread

    def close(self, open_id: int) -> bool:
        """Release an open in the table. Returns whether it has a row, which is left to be deleted."""
        if self._ahead[0] == open_id:
            self.store.rollback()
        return self._table.release(open_id)

    def release(self, open_id: int, *, at_once: bool = True, wait: bool = True) -> None:
        """Release an open. Its row is deleted `at_once`, or some time later: one that is short."""
        if self.close(open_id):
            self._released.append(open_id)
            if at_once or len(self._released) >= _DELETED_TOGETHER:
                self._delete(wait)

    def forget_written(self, open_id: int, note: Callable[[], None], *, wait: bool = True) -> None:
        """Delete the row of an open that was closed and may have been written. `note` is called in the same transaction
        where a value was begun and not completed.
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
        """While there is nothing else to do."""
        if len(self._released) >= _DELETED_WHEN_IDLE:
            with suppress(WouldWaitError, StateError):
                self._delete(wait=False)

    def flush(self) -> None:
        """Before the process ends by itself, unless somebody else is at the store."""
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
        """Once for each connection: the mount may have to be entered again, where an older copy was put back."""
        if self._joined and self._joined == self.store.connections:
            return
        self._first = self.store.run(self._enter, wait=wait)
        self._joined = self.store.connections

    def _enter(self, connection: sqlite3.Connection) -> int:
        """Enter the mount and delete the rows of its opens that were released. Returns its first row."""
        first, last = rows_of(add_mount(connection, self._pid))
        for table, column in (("open", "id"), ("written", "open")):
            found = connection.execute(f"SELECT {column} FROM {table} WHERE {column} BETWEEN ? AND ?", (first, last))
            gone = [(row,) for (row,) in found.fetchall() if not self._table.is_open(row - first)]
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)
        return first
