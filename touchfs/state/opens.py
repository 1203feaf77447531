"""The opens of control files: rows of the state store, from before the file is opened until after it is released.

The text of an open is made at its first read, and kept in its row. Requests may be sent twice, to any worker, so a text
is made only for a row that is there and has none: a read that runs again, even after the release, changes nothing.

Only that is a transaction of its own. The rows are made ahead of their opens, some dozens at a time, and those that are
released are deleted together, so a step costs one transaction and not three. What a killed worker had made ahead, or
not deleted yet, is deleted with its mount.

The text itself may be made ahead of the first read too, as an attempt of the store: the read then only commits it.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from touchfs.errors import StateError
from touchfs.state.database import WouldWaitError
from touchfs.state.store import StateStore

_AHEAD = 64
# So few rows are left when more are made if there is time.
_FEW = 16

Make = Callable[[sqlite3.Connection], bytes]


class Opened(NamedTuple):
    """An open of a control file, of an iterator or, if that is 0, of none."""

    id: int
    iterator: int
    file: str


class Opens:
    """Those of one process at a mount."""

    def __init__(self, store: StateStore, mount: int) -> None:
        self.store = store
        self._mount = mount
        self._rows: list[int] = []
        self._released: deque[int] = deque()  # several threads add to it and take from it
        self._ahead = 0, b""

    def open(self, *, wait: bool = True) -> int:
        """The id of a new open. Ids are never given again."""
        while True:
            try:
                return self._rows.pop()
            except IndexError:
                self._make_rows(wait)

    def text(self, open_id: int, make: Make, *, wait: bool = True) -> bytes:
        """What `make` makes at the first read, in the same transaction, and the same ever after; nothing if it was
        released.
        """
        with self.store.transaction(wait=wait) as connection:
            found = connection.execute("SELECT text FROM open WHERE id = ?", (open_id,)).fetchone()
            if found is None:
                return b""
            (text,) = found
            if text is None:
                text = make(connection)
                connection.execute("UPDATE open SET text = ? WHERE id = ?", (text, open_id))
        return bytes(text)

    def make_ahead(self, open_id: int, make: Make) -> None:
        """Make the text as an attempt of the store, for the thread that asks `made_ahead` then.

        Raises WouldWaitError, and what `make` raises; it is then as if nothing was tried.
        """

        def attempt(connection: sqlite3.Connection) -> bytes:
            text = make(connection)
            given = connection.execute("UPDATE open SET text = ? WHERE id = ? AND text IS NULL", (text, open_id))
            if not given.rowcount:
                raise WouldWaitError  # released, or read in another process
            return text

        self._ahead = open_id, self.store.attempt(attempt)

    def made_ahead(self, open_id: int) -> bytes | None:
        """At the first read: the text, if it was made ahead, and nothing else was done with the store since."""
        ahead, text = self._ahead
        return text if ahead == open_id and self.store.commit() else None

    def release(self, open_id: int, *, at_once: bool = True, wait: bool = True) -> None:
        """Its row is deleted `at_once`, or some time later: for one that has a text, and a short one."""
        if at_once or len(self._released) >= 2 * _AHEAD:
            self._delete(open_id, wait=wait)
        else:
            self._released.append(open_id)

    def tidy(self) -> None:
        """While there is nothing else to do."""
        if len(self._rows) < _FEW:
            with suppress(WouldWaitError, StateError):  # who opens a file is told
                self._make_rows(wait=False)

    def close(self) -> None:
        """Delete all rows that are not needed any more, unless somebody else is at the store."""
        rows, self._rows = self._rows, []
        self._delete(*rows, wait=False)

    def _make_rows(self, wait: bool) -> None:
        self._delete(wait=wait)
        rows = ", ".join(["(?)"] * _AHEAD)
        with self.store.transaction(wait=wait) as connection:
            last = connection.execute(f"INSERT INTO open (mount) VALUES {rows}", [self._mount] * _AHEAD).lastrowid or 0
        self._rows += range(last, last - _AHEAD, -1)

    def _delete(self, *others: int, wait: bool = True) -> None:
        """Those released, and others."""
        released: list[int] = []
        with suppress(IndexError):
            while True:
                released.append(self._released.popleft())
        try:
            with self.store.transaction(wait=wait) as connection:
                rows = [(open_id,) for open_id in (*released, *others)]
                connection.executemany("DELETE FROM open WHERE id = ?", rows)
        except BaseException:
            self._released += [*released, *others]
            raise
