"""The store of iterators in PostgreSQL, with the transactions and promises of the one in SQLite.

All changes of a dataset's iterators take one lock, as those of SQLite do, so no two steps of any machines see the same
position. A transaction always waits for the database, so it never runs on the daemon's loop: `without_waiting` raises
WouldWaitError. `run` tries again for some seconds while the database is away, and then raises StateError.

Each transaction stores its own number, under that of its process. If the connection is lost while it is committed, the
next one looks for this number: if it is there, the change was made. Meanwhile it has the lock, so nothing that the
broken connection has begun is still going on.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import psycopg

from touchfs.core.errors import StateError, WouldWaitError
from touchfs.postgres.connection import LostConnectionError, PostgresConnection, state_error
from touchfs.postgres.leases import LEASE_SECONDS, enter_mount, leave_mount
from touchfs.postgres.place import FleetPlace
from touchfs.postgres.schema import enter_schema
from touchfs.store.iterator_store import Connection, IteratorStore
from touchfs.store.patience import current_patience, may_wait

# How long a call waits for a database that is away. Then all calls fail at once, until it is tried again.
AWAY_SECONDS = 5.0
_RETRY_SECONDS, _RETRY_SECONDS_MAX, _AGAIN_SECONDS = 0.05, 0.5, 1.0
_ENTER_SECONDS = LEASE_SECONDS / 4
_CLOSE_SECONDS = 1.0

_CHANGED = (
    "INSERT INTO process (id, mount, last) VALUES (?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET mount = excluded.mount, last = excluded.last, seen = now()"
)

T = TypeVar("T")


class PostgresStore:
    """The iterators at a place, of the dataset with this fingerprint (`DatasetSamples.fingerprint`), or
    of any dataset, for who only cleans up.

    The constructor connects, and makes the tables if there are none; with `later` the first use connects, and there
    must be tables. One thread at a time uses the connection.
    """

    def __init__(self, place: FleetPlace, fingerprint: Callable[[], str] | None, *, later: bool = False) -> None:
        self.place = place
        self._fingerprint = fingerprint
        self.path = place.shown
        self.directory = place.directory
        self._process = secrets.randbits(62)
        self._change = 0
        self._mount: int | None = None
        self._entered_at = 0.0
        self._connections = 1
        self._lock = threading.RLock()
        self._lock_key = 0
        # The thread that is in a transaction.
        self._owner: int | None = None
        self._is_closed = False
        self._connection: PostgresConnection | None = None
        self._problem: StateError | None = None
        self._fails_until = 0.0
        if not later:
            self._connect(create=True)

    @property
    def connections(self) -> int:
        """Grows when this process has to enter its mount again: the connection or a part of the lease is over."""
        if self._entered_at and time.clock_gettime(time.CLOCK_BOOTTIME) > self._entered_at + _ENTER_SECONDS:
            self._entered_at = 0.0
            self._connections += 1
        return self._connections

    def transaction(self, *, write: bool = True) -> _PostgresTransaction:
        """Like `IteratorStore.transaction`. Raises WouldWaitError to a caller that must not wait."""
        return _PostgresTransaction(self, write)

    def run(self, act: Callable[[Connection], T]) -> T:
        """Like `IteratorStore.run`. A change whose commit was not confirmed is not made again if it was made."""
        if self._owner == threading.get_ident():
            with self.transaction() as connection:
                return act(connection)
        unconfirmed: tuple[int, int] | None = None
        result: T | None = None
        until = time.monotonic() + min(AWAY_SECONDS, current_patience().left)
        pause = _RETRY_SECONDS
        while True:
            try:
                with self.transaction() as connection:
                    if unconfirmed is not None and _is_made(connection, *unconfirmed):
                        return result  # type: ignore[return-value]
                    result = act(connection)
                    unconfirmed = self._note_change(connection)
                return result
            except LostConnectionError:
                if time.monotonic() + pause >= until:
                    self._fails_until = time.monotonic() + _AGAIN_SECONDS
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _RETRY_SECONDS_MAX)

    def pending_sync(self) -> None:
        """Return None: a commit waits until it is durable."""

    def enter(self, connection: Connection, pid: int) -> int:
        """Like `IteratorStore.enter`. The mount is that of the place, whatever the process."""
        self._mount = enter_mount(connection, self.place.mount)
        self._entered_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        return self._mount

    def leave(self) -> None:
        """Delete all rows of the mount, after it has ended."""
        with self.transaction() as connection:
            leave_mount(connection, self.place.mount)

    def close(self) -> None:
        """Disconnect. A process without a mount deletes what it has stored about itself."""
        self._is_closed = True
        if not self._lock.acquire(timeout=_CLOSE_SECONDS):
            return  # a thread still waits for the database: the process ends anyway
        if self._connection is not None and not self.place.mount:
            with suppress(psycopg.Error):
                self._connection.execute("DELETE FROM process WHERE id = ?", (self._process,))
                self._connection.flush()
        self._drop()
        self._lock.release()

    def _note_change(self, connection: Connection) -> tuple[int, int]:
        """Store the number of a change, and return it after that of this process."""
        self._change += 1
        connection.execute(_CHANGED, (self._process, self._mount, self._change))
        return self._process, self._change

    def _connect(self, *, create: bool = False) -> PostgresConnection:
        if self._is_closed:
            raise StateError("was closed", path=self.path)
        if self._problem is not None and time.monotonic() < self._fails_until:
            raise type(self._problem)(self._problem.message, path=self.path)
        begin = time.monotonic()
        try:
            connection = self._connection = PostgresConnection(self.place.address)
            connection.check(self.path)
            fingerprint = None if self._fingerprint is None else self._fingerprint()
            self._lock_key = enter_schema(connection, self.place, fingerprint, create=create)
        except psycopg.Error as error:
            self._problem, now = state_error(error, self.path), time.monotonic()
            # A thread that waits for this connection does not wait for another one that takes as long.
            self._fails_until = now + min(now - begin, _RETRY_SECONDS_MAX)
            self._drop()
            raise self._problem from error
        except StateError as error:
            self._problem, self._fails_until = error, time.monotonic() + _AGAIN_SECONDS
            self._drop()
            raise
        self._problem = None
        connection.watchdog.end()
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._connections += 1
        # Other threads use another number from now on, so that of a change in doubt stays what it is.
        self._process = secrets.randbits(62)
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


def _is_made(connection: Connection, process: int, change: int) -> bool:
    found = connection.execute("SELECT last FROM process WHERE id = ?", (process,)).fetchone()
    return found is not None and found[0] == change


class _PostgresTransaction:
    """A transaction, which has the lock of its process and, if it writes, that of the dataset."""

    __slots__ = ("_outermost", "_store", "_write")

    def __init__(self, store: PostgresStore, write: bool) -> None:
        self._store = store
        self._write = write

    def __enter__(self) -> PostgresConnection:
        store = self._store
        if not may_wait():
            raise WouldWaitError
        if not store._lock.acquire(timeout=current_patience().left):
            raise StateError("other processes of this machine use it for long", path=store.path)
        try:
            self._outermost = store._owner is None
            connection = store._connection or store._connect()
            if self._outermost:
                self._begin(connection)
            return connection
        except BaseException:
            store._lock.release()
            raise

    def _begin(self, connection: PostgresConnection) -> None:
        store = self._store
        connection.watchdog.begin()
        try:
            connection.execute("BEGIN" if self._write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if self._write:
                # Wait for the lock: what the act sees in shared memory has to be as new as what it reads here.
                connection.execute("SELECT pg_advisory_xact_lock(?)", (store._lock_key,)).fetchone()
        except psycopg.Error as error:
            store._drop()
            raise state_error(error, store.path) from error
        store._owner = threading.get_ident()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        store = self._store
        try:
            if self._outermost:
                store._owner = None
                self._end(error)
            elif isinstance(error, psycopg.Error):
                raise state_error(error, store.path) from error
        finally:
            store._lock.release()

    def _end(self, error: BaseException | None) -> None:
        """Commit, or roll back because of an error. Any error of the database costs the connection."""
        store, connection = self._store, self._store._connection
        failed = error if isinstance(error, psycopg.Error) else None
        if failed is None:
            try:
                if connection is None:
                    raise psycopg.OperationalError("the connection was closed")
                if error is None:
                    connection.commit()
                else:
                    connection.execute("ROLLBACK").received()
                connection.watchdog.end()
            except psycopg.Error as failure:
                failed = failure
        if failed is not None:
            store._drop()
            if error is None or error is failed:
                raise state_error(failed, store.path) from failed


if TYPE_CHECKING:
    _: type[IteratorStore] = PostgresStore
