"""The store of iterators, their steps and their open files: a SQLite file, or a PostgreSQL that machines share.

Both understand the same statements, with `?` for values: SQL is what they have in common. What only one machine knows
(the ids of its shards, its mounts) is always in SQLite (`touchfs.store.store`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Rows(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any:
        """The next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """All other rows."""
        ...

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""
        ...


class Connection(Protocol):
    """A connection inside a transaction."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> Rows:
        """Run a statement with these values for its `?`."""
        ...

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row of values."""
        ...


class IteratorStore(Protocol):
    """A store of iterators. All methods raise StateError if it cannot be used.

    `path` names it in errors. Files that belong to it are in `directory`, on this machine. `connections` changes
    whenever what a process knows of the store must be checked again.
    """

    @property
    def path(self) -> str: ...
    @property
    def directory(self) -> str: ...
    @property
    def connections(self) -> int: ...

    def transaction(self, *, write: bool = True) -> AbstractContextManager[Connection]:
        """A transaction. A nested one is part of the outermost one. Without `write` it reads a snapshot."""
        ...

    def run(self, act: Callable[[Connection], T]) -> T:
        """Call `act` in a transaction. Nobody else changes the store in the meantime. It may be called again, if the
        store knows that the transaction before did not happen.
        """
        ...

    def pending_sync(self) -> Callable[[], None] | None:
        """Return a function that waits until all changes so far are durable, or None if nobody has to wait."""
        ...

    def enter(self, connection: Connection, pid: int) -> int:
        """Return the number of the mount that the process `pid` serves, and delete what ended mounts left."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
