"""A SQLite file that any number of processes change at once, each through its own connection, made after any fork.

Within a process one thread at a time uses the connection: while one thread has an open statement, the transaction of
another thread on the same connection looks committed but is not (found by killing workers: an open was answered, and
its row was gone). A thread that waits for other processes does not block the threads of its own process: it releases
the connection between attempts, so all wait at the same time, each as long as its own `Patience` lasts.

A connection that fails is dropped, and a new one is made at the next use, at most once a second. So a process survives
a disk that is temporarily gone, and a replaced file: the file is checked once a second.

With `fsync` a thread waits for the disk after it has committed and released the connection (`log_sync`). So others may
see a change before it is durable, and what they commit then is durable only with it. Inside `without_waiting` nobody
waits for the disk, and the caller waits for `pending_sync` in a thread.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from touchfs.core.errors import StateError, WouldWaitError
from touchfs.store.connection import DiskFullError, busy_error, code_of, open_connection, state_error
from touchfs.store.log_sync import LogSync
from touchfs.store.patience import current_patience, may_wait
from touchfs.store.place import file_at

_RETRY_SECONDS, _RETRY_SECONDS_MAX = 0.0005, 0.01
_LOOK_SECONDS = _RECONNECT_SECONDS = 1.0

T = TypeVar("T")


class Database:
    """The file at `path`. The constructor and all methods raise StateError if it cannot be used.

    The constructor connects, and creates the file if necessary. With `later`, the first use connects, and the file must
    exist then. With `fsync` each transaction waits for the disk.
    """

    def __init__(self, path: str, *, fsync: bool = False, later: bool = False) -> None:
        self.path = path
        # The number of connections made so far. A change means that cached knowledge about the file must be checked.
        self.connections = 0
        self._fsync = fsync
        self._log_sync: LogSync | None = None
        self._lock = threading.RLock()
        self._is_in_transaction = False
        self._is_broken = self._is_closed = False
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] = 0, 0
        self._look_at = self._retry_at = 0.0
        self._problem: StateError | None = None
        self._create = not later
        if not later:
            self._connect()
            self._create = False

    def _check_content(self, connection: sqlite3.Connection) -> None:
        """Hook that checks the content of the file on each new connection. Raises StateError or sqlite3.Error."""

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._drop()

    def transaction(self, *, write: bool = True) -> _Transaction:
        """Return a context manager around a transaction. A nested one is part of the outermost one.

        Without `write` it reads a snapshot, and never waits for other processes.
        """
        return _Transaction(self, write)

    def run(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Call `act` in a transaction, and once more if the disk was full and may have room now.

        The log of the database itself, which is otherwise emptied at 4 MB, may fill the disk. After SQLITE_FULL it is
        emptied.
        """
        try:
            with _Transaction(self, True) as connection:
                return act(connection)
        except DiskFullError:
            if self._is_in_transaction:
                raise  # only the outermost transaction is repeated
            if not may_wait():
                raise WouldWaitError from None
        with self.transaction() as connection:
            return act(connection)

    def pending_sync(self) -> Callable[[], None] | None:
        """Return a function that waits until all changes so far are durable, or None without `fsync`."""
        log_sync = self._log_sync
        return None if log_sync is None else log_sync.pending()

    def _connected(self) -> sqlite3.Connection:
        """Return the connection, reconnecting if necessary. The caller has the lock."""
        now = time.monotonic()
        if self._log_sync is not None and self._log_sync.has_failed and not self._is_in_transaction:
            self._drop()
        if self._connection is not None and now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            if file_at(self.path) != self._file:
                self._drop()
            elif not self._is_in_transaction:
                # SQLite goes on with the pages in its memory if another program has overwritten the file. Without them
                # it reads pages again, and finds the damage before more steps are lost.
                self._connection.execute("PRAGMA shrink_memory")
        if self._connection is None:
            if self._is_closed:
                raise StateError("was closed", path=self.path)
            if self._problem is not None and now < self._retry_at:
                raise type(self._problem)(self._problem.message, path=self._problem.path)
            if not may_wait():
                raise WouldWaitError
            return self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        patience = current_patience()
        self._retry_at = time.monotonic() + _RECONNECT_SECONDS
        try:
            connection = open_connection(self.path, patience, create=self._create)
            self._connection, self._file = connection, file_at(self.path)
            try:
                self._check_content(connection)
                connection.execute("PRAGMA busy_timeout = 0")  # from here on transactions wait by themselves
                self._log_sync = LogSync(self.path) if self._fsync else None
            except sqlite3.Error as error:
                raise state_error(error, self.path, patience) from error
            except OSError as error:
                raise StateError(f"has no log: {error.strerror}; mount again", path=self.path) from error
        except StateError as error:
            self._problem = error
            self._drop()
            raise
        self._problem = None
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self.connections += 1
        return connection

    def _drop(self) -> None:
        """Close the connection. SQLite does not touch another file that is now at its path."""
        connection, self._connection, self._log_sync = self._connection, None, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _failed(self, error: sqlite3.Error) -> StateError:
        """Return the error to raise for an error of SQLite. All but temporary errors cost the connection."""
        self._is_broken |= code_of(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CONSTRAINT)
        problem = state_error(error, self.path, current_patience())
        if self._is_broken:
            self._problem, self._retry_at = problem, time.monotonic() + _RECONNECT_SECONDS
        return problem


class _Transaction:
    """A transaction. Not a generator with `contextmanager`, which would take longer than the work of a step."""

    __slots__ = ("_database", "_outermost", "_waits", "_write")

    def __init__(self, database: Database, write: bool) -> None:
        self._database = database
        self._write = write

    def __enter__(self) -> sqlite3.Connection:
        database = self._database
        self._waits = may_wait()
        if not self._waits:
            if not database._lock.acquire(False):
                raise WouldWaitError
            return self._enter(database)
        patience, pause = current_patience(), _RETRY_SECONDS
        while database._lock.acquire(timeout=patience.left):
            try:
                return self._enter(database)
            except WouldWaitError:
                if not patience.left:
                    break
            time.sleep(min(pause, patience.left))
            pause = min(1.5 * pause, _RETRY_SECONDS_MAX)
        raise busy_error(database.path, patience)

    def _enter(self, database: Database) -> sqlite3.Connection:
        """Begin. The caller has acquired the lock; it is released if this fails."""
        try:
            connection = database._connected()
            self._outermost = not database._is_in_transaction
            if self._outermost:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")  # an earlier one that failed because the disk was gone
                # SQLite's busy timeout is a setting of the connection, not of a transaction, so it is not used.
                connection.execute("BEGIN IMMEDIATE" if self._write else "BEGIN")
                if not self._write:
                    # The first read fixes the snapshot, and may have to wait for a recovery.
                    connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
                database._is_in_transaction = True
            return connection
        except sqlite3.Error as error:
            if code_of(error) == sqlite3.SQLITE_BUSY:
                problem: Exception = WouldWaitError()
            else:
                problem = database._failed(error)
                self._leave(database)
            database._lock.release()
            raise problem from error
        except BaseException:
            database._lock.release()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        """Commit, or roll back because of an error."""
        database = self._database
        problem: StateError | None = None
        wait_for_disk: Callable[[], None] | None = None
        try:
            if self._outermost:
                database._is_in_transaction = False
                connection = database._connection
                if error is None and connection is not None:
                    try:
                        connection.execute("COMMIT")
                    except sqlite3.Error as failure:
                        error = failure
                if error is not None and connection is not None:
                    self._rollback(connection, error)
                elif self._write and self._waits:
                    wait_for_disk = database.pending_sync()
            if isinstance(error, sqlite3.Error):
                problem = database._failed(error)
            if self._outermost and database._is_broken:
                self._leave(database)
        finally:
            database._lock.release()
        if problem is not None:
            raise problem from error
        if wait_for_disk is not None:
            wait_for_disk()

    def _leave(self, database: Database) -> None:
        if database._is_broken and not database._is_in_transaction:
            database._is_broken = False
            database._drop()

    def _rollback(self, connection: sqlite3.Connection, error: BaseException) -> None:
        with suppress(sqlite3.Error):  # the disk may be gone
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if code_of(error) == sqlite3.SQLITE_FULL:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
