"""The file `error` of an iterator: the reason why the last read or write of its files failed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from touchfs.core.errors import NotFoundError, StateError, TouchfsError
from touchfs.iterators.spec import is_written, refused, stored_spec
from touchfs.posix.memory.shared import SharedText
from touchfs.store.iterator_store import Connection, IteratorStore
from touchfs.store.patience import Patience, current_patience, with_patience


class ErrorNotes:
    """Records errors: in the rows of the iterators, or in `problem`, which all processes of a mount share, if the store
    failed."""

    def __init__(self, store: IteratorStore, problem: SharedText) -> None:
        self._store = store
        self.problem = problem

    @contextmanager
    def noting(self, iterator: int, file: str, *, changes: bool = False) -> Iterator[None]:
        """Record an error of the block. With `changes` the block changes the store, so its success ends a problem."""
        try:
            yield
        except StateError as error:
            if changes:
                self.problem.set(str(error))
            raise
        except NotFoundError:
            raise
        except TouchfsError as error:
            with suppress(StateError):  # the caller gets the first error; one that only looks does not wait here
                patience = current_patience() if changes else Patience(0)
                with_patience(patience, self.note, iterator, file, error, changes)
            raise
        if changes:
            self.problem.clear()

    def note(self, iterator: int, file: str, error: TouchfsError, changes: bool = True) -> None:
        """Record an error of a file of an iterator.

        If a spec was refused and the iterator has no other one, it makes no steps until it has: a script that does not
        look at errors would get samples that it has not asked for.
        """
        text = str(error) if str(error).startswith(file) else f"{file}: {error}"

        def act(connection: Connection) -> None:
            connection.execute("UPDATE iterator SET error = ? WHERE id = ?", (text + "\n", iterator))
            if file == "spec" and changes:
                found = connection.execute("SELECT spec FROM iterator WHERE id = ?", (iterator,)).fetchone()
                if found is not None and not is_written(found[0]):
                    spec = refused(text, stored_spec(found[0]).batch)
                    connection.execute("UPDATE iterator SET spec = ? WHERE id = ?", (spec, iterator))

        self._store.run(act)

    def text(self, read: Callable[[], bytes]) -> bytes:
        """The text of `error`: what `read` finds in the store, or else the reason why the store cannot be used."""
        try:
            if text := read():
                return text
            problem = self.problem.text()
        except StateError as error:
            problem = str(error)
        return os.fsencode(f"{problem}\n") if problem else b""
