"""The opens of control files: rows of the state store, from before the file is opened until after it is released.

The text of an open is made at its first read, and kept in its row. Requests may be sent twice, to any worker, so a text
is made only for a row that is there and has none: a read that runs again, even after the release, changes nothing. (Of
one that was released unread no read can be under way.)

Only that is a transaction of its own. The rows are made ahead of their opens, some dozens at a time, and those that are
released are deleted together, so a step costs one transaction and not three. Rows that nobody learned of, or that a
killed worker had not deleted yet, are deleted with their mount.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from touchfs.state.store import StateStore

_AHEAD = 64
# A longer text is not kept for longer than its open.
_TEXT_MAX = 1 << 16


class Opened(NamedTuple):
    """An open of a file of an iterator."""

    id: int
    iterator: int
    file: str


class Opens:
    """Those of one process at a mount."""

    def __init__(self, store: StateStore, mount: int) -> None:
        self.store = store
        self._mount = mount
        self._ahead: list[int] = []
        self._released: list[int] = []
        self._long: set[int] = set()

    def open(self, *, wait: bool = True) -> int:
        """The id of a new open. Ids are never given again."""
        while True:
            try:
                return self._ahead.pop()
            except IndexError:
                self._make_rows(wait)

    def text(self, open_id: int, make: Callable[[sqlite3.Connection], bytes], *, wait: bool = True) -> bytes:
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
        if len(text) > _TEXT_MAX:
            self._long.add(open_id)
        return bytes(text)

    def release(self, open_id: int, *, wait: bool = True) -> None:
        self._released.append(open_id)
        if open_id in self._long or len(self._released) > 2 * _AHEAD:
            self._delete_rows(wait)

    def _make_rows(self, wait: bool) -> None:
        self._delete_rows(wait)
        rows = ", ".join(["(?)"] * _AHEAD)
        with self.store.transaction(wait=wait) as connection:
            last = connection.execute(f"INSERT INTO open (mount) VALUES {rows}", [self._mount] * _AHEAD).lastrowid or 0
        self._ahead += range(last, last - _AHEAD, -1)

    def _delete_rows(self, wait: bool) -> None:
        with self.store.transaction(wait=wait) as connection:
            released = self._released[:]  # other threads may add to it
            connection.executemany("DELETE FROM open WHERE id = ?", [(open_id,) for open_id in released])
            del self._released[: len(released)]
            self._long.difference_update(released)
