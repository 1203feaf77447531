"""Open control files of a mount whose iterators are in PostgreSQL.

The text of a step is in the memory that the processes of the mount share (`touchfs.store.open_table`), put there before
the step is committed. The row in the database, committed with the step, says which try it was that happened. So a
worker that gets the request of a killed one finds both, and a batch of many paths costs the network nothing.

A text that is known to belong to a committed step is never looked for again. Should the lease of the mount end while a
step is in doubt, its open file is lost: it is never stepped a second time.
"""

from __future__ import annotations

import os
from contextlib import suppress

from touchfs.core.errors import StateError
from touchfs.store.iterator_store import Connection
from touchfs.store.opens import Make, Opens

_TRY_SIZE = 8
# Rows deleted together, in a thread that has just made a step.
_DELETED_TOGETHER = 128


class FleetOpens(Opens):
    """`Opens` in a `PostgresStore`."""

    def text(self, open_id: int, make: Make) -> bytes:
        """Like `Opens.text`. Raises StateError if nobody knows any more whether the step of this open was made."""
        table = self.table
        if table.is_settled(open_id):
            return (table.proposed(open_id) or b"")[_TRY_SIZE:]
        self._join()

        def act(connection: Connection) -> bytes:
            if not table.is_open(open_id):
                return b""
            if table.is_lost(open_id):
                message = "the lease of this mount ended during a step of this file: open it again"
                raise StateError(message, path=self.store.path)
            row, attempt = self._first + open_id, os.urandom(_TRY_SIZE)
            if table.has_row(open_id):
                found = connection.execute("SELECT text FROM open WHERE id = ?", (row,)).fetchone()
                if found is not None and found[0] is not None:
                    return self._made(open_id, bytes(found[0]))
            text = make(connection)
            # Before the row may exist: a process that finds the row finds the text.
            table.mark_row(open_id)
            table.propose(open_id, attempt + text)
            # A row without a number exists if the file was also written to.
            added = "INSERT INTO open (id, text) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET text = excluded.text"
            connection.execute(added, (row, attempt))
            return text

        text = self.store.run(act)
        table.settle(open_id)
        if len(self._released) >= _DELETED_TOGETHER:
            with suppress(StateError):
                self._delete()
        return text

    def _made(self, open_id: int, attempt: bytes) -> bytes:
        """The text of the try that happened."""
        kept = self.table.proposed(open_id) or b""
        if kept[:_TRY_SIZE] != attempt:
            raise StateError("the text of this step is lost: open the file again", path=self.store.path)
        return kept[_TRY_SIZE:]

    def _enter(self, connection: Connection) -> int:
        first = super()._enter(connection)
        self.table.enter(first)
        return first
