"""Open control files with a row in the state store: those of `next`, whose reading makes a step, and those written to.

The text of an open file is made at its first read, in one transaction with the step, and stored in its row. A request
may be sent twice, to a process and its successor. So a text is made only for an open file that has none and was not
released (`OpenTable`): repeating a read, even after the release, changes nothing.

No other operation needs a transaction for each open. Rows of released opens are deleted together, some dozens at a
time. The successor of a killed worker deletes the rows left by it when it first uses the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from touchfs.core.errors import StateError, WouldWaitError
from touchfs.store.iterator_store import Connection, IteratorStore
from touchfs.store.open_table import OpenTable, rows_of
from touchfs.store.patience import without_waiting

# Rows deleted together.
_DELETED_TOGETHER = 128

_OR_UPDATE = "ON CONFLICT (id) DO UPDATE SET text = excluded.text"

Make = Callable[[Connection], bytes]
T = TypeVar("T")


class Opens:
    """The open files of a mount, as used by one of its processes. `pid` is the process that serves the mount."""

    def __init__(self, store: IteratorStore, table: OpenTable, pid: int) -> None:
        self.store = store
        self.table = table
        self._pid = pid
        # The connection of the store on which the mount's row was last checked, and the first row id of the mount.
        self._joined, self._first = -1, 0
        self._released: deque[int] = deque()  # several threads append and pop

    def open(self) -> int:
        """Return the id of a new open file. Raises FullError."""
        return self.table.open()

    def text(self, open_id: int, make: Make) -> bytes:
        """Return the text of an open file. The first call makes it with `make`, in the transaction that stores it.

        Returns b"" if the file was released.
        """
        if self._joined != self.store.connections:
            self._join()

        def act(connection: Connection) -> bytes:
            if not self.table.is_open(open_id):
                return b""
            row = self._first + open_id
            if self.table.has_row(open_id):
                found = connection.execute("SELECT text FROM open WHERE id = ?", (row,)).fetchone()
                if found is not None and found[0] is not None:
                    return bytes(found[0])
            text = make(connection)
            # A row without a text exists if the file was also written to.
            connection.execute("INSERT INTO open (id, text) VALUES (?, ?) " + _OR_UPDATE, (row, text))
            self.table.mark_row(open_id)
            return text

        return self.store.run(act)

    def change(self, open_id: int, act: Callable[[Connection, int], T]) -> T | None:
        """Call `act` in a transaction, with the row id of an open file. Returns None if the file was released."""
        self._join()

        def change(connection: Connection) -> T | None:
            if not self.table.is_open(open_id):
                return None
            row = self._first + open_id
            self.table.mark_row(open_id)
            connection.execute("INSERT INTO open (id) VALUES (?) ON CONFLICT DO NOTHING", (row,))
            return act(connection, row)

        return self.store.run(change)

    def release(self, open_id: int, *, at_once: bool = True) -> None:
        """Release an open file without waiting. Its row is deleted `at_once` or, if short, later with others."""
        if self.table.release(open_id):
            self._released.append(open_id)
            if at_once or len(self._released) >= _DELETED_TOGETHER:
                self._delete_nowait()

    def forget_written(self, open_id: int, note: Callable[[], None]) -> None:
        """Delete the row of a closed file that may have been written to.

        `note` is called in the same transaction if an incomplete value was written.
        """
        self._join()
        row = self._first + open_id

        def act(connection: Connection) -> None:
            found = connection.execute("SELECT pending FROM open WHERE id = ?", (row,)).fetchone()
            if found is not None and bytes(found[0]).strip():
                note()
            connection.execute("DELETE FROM written WHERE open = ?", (row,))
            connection.execute("DELETE FROM open WHERE id = ?", (row,))

        self.store.run(act)

    def flush(self) -> None:
        """Delete the rows of all released files, before the process exits."""
        if self._released:
            self._delete_nowait()

    def _delete_nowait(self) -> None:
        """Delete the rows of released files; later, if the store is locked or cannot be used."""
        with suppress(WouldWaitError, StateError):
            without_waiting(self._delete)

    def _delete(self) -> None:
        self._join()
        released: list[int] = []
        with suppress(IndexError):
            while True:
                released.append(self._released.popleft())
        rows = [(self._first + open_id,) for open_id in released]
        try:
            self.store.run(lambda connection: connection.executemany("DELETE FROM open WHERE id = ?", rows))
        except BaseException:
            self._released += released
            raise

    def _join(self) -> None:
        """Enter the mount, once for each connection: the file may have been replaced by an older copy."""
        if self._joined == self.store.connections:
            return
        self._first = self.store.run(self._enter)
        self._joined = self.store.connections

    def _enter(self, connection: Connection) -> int:
        """Enter the mount, delete the rows of its released files, and return its first row id."""
        first, last = rows_of(self.store.enter(connection, self._pid))
        for table, column in (("open", "id"), ("written", "open")):
            found = connection.execute(f"SELECT {column} FROM {table} WHERE {column} BETWEEN ? AND ?", (first, last))
            gone = [(row,) for (row,) in found.fetchall() if not self.table.is_open(row - first)]
            connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", gone)
        return first
