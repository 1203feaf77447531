"""A SQLite file that any number of processes change at once, each on a connection of its own, made after any fork.

Within a process one thread at a time: while one thread's statement is open on a connection, another thread's
transaction on it is not committed yet, although it looks so (found by killing workers: an open was answered, and its
row was gone).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from touchfs.errors import FullError, StateError
from touchfs.source.mounts import mounts
from touchfs.state.place import prepare_database

BUSY_SECONDS = 30.0
_RETRY_SECONDS = 0.0005

# File systems on which SQLite's locks or its shared memory file cannot be relied on.
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs", "ncpfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs", "fuse.touchfs"}
)

T = TypeVar("T")


class Database:
    """A connection to the file at `path`, which is made with this schema if need be. With `fsync` each transaction
    waits for the disk. Raises StateError.
    """

    def __init__(self, path: str, schema: str, version: int, *, fsync: bool = False) -> None:
        self.path = path
        self._fsync = fsync
        self._lock = threading.RLock()
        self._attempt: _Transaction | None = None
        self._is_in_transaction = False
        directory = os.path.dirname(path) or "."
        try:
            prepare_database(path)
            kind = _file_system(directory)
        except OSError as error:
            raise StateError(f"cannot be used: {error.strerror}; choose another --state-dir", path=directory) from error
        if kind in NETWORK_FILE_SYSTEMS:
            raise StateError(f"the state cannot be kept on {kind}: choose a local --state-dir", path=directory)
        with self._errors():
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            try:
                self._prepare(schema, version)
            except BaseException:
                self.close()
                raise

    def _prepare(self, schema: str, version: int) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        # What a transaction wrote survives any process; a power cut may take the last ones, and the mounts with them,
        # unless each is to wait for the disk.
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsync else 'NORMAL'}")
        self._connection.execute("PRAGMA foreign_keys = ON")
        with self.transaction() as connection:
            ((found,),) = connection.execute("PRAGMA user_version").fetchall()
            if found == 0:
                for statement in filter(str.strip, schema.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version}")
        self._connection.execute("PRAGMA busy_timeout = 0")  # `_Transaction` waits
        if found not in (0, version):
            raise StateError(f"made by another touchfs (version {found}): choose another --state-dir", path=self.path)

    def close(self) -> None:
        self.undo()
        self._connection.close()

    def transaction(self, *, wait: bool = True) -> _Transaction:
        """All that is done inside happens, or nothing. One inside another is a part of it.

        Without `wait` it raises WouldWaitError when another thread or process is in one, or the disk is waited for.
        """
        return _Transaction(self, wait)

    def attempt(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Act in a transaction that `commit` is to end. Whatever else is done with the file before undoes it, and so
        does `undo`; nobody else can change it until then. Raises WouldWaitError, and what the act raises.

        All three are for one thread.
        """
        attempt = self.transaction(wait=False)
        connection = attempt.begin()
        try:
            made = act(connection)
        except BaseException as error:
            attempt.end(error)
            raise
        self._attempt = attempt
        return made

    def commit(self) -> bool:
        """Whether there was an attempt, which is done then."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return False
        attempt.end(None)
        return True

    def undo(self) -> None:
        """The attempt, if there is one."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end(WouldWaitError())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._told(error) from error

    def _told(self, error: sqlite3.Error) -> StateError:
        code = _code(error)
        if code == sqlite3.SQLITE_FULL:
            return FullError("the disk is full: nothing was changed", path=self.path)
        if code == sqlite3.SQLITE_BUSY:
            told = f"another process has held it for {BUSY_SECONDS:.0f} s: see whether one of touchfs is stopped"
            return StateError(told, path=self.path)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StateError(f"damaged ({error}): unmount what uses it, and delete it", path=self.path)
        return StateError(f"cannot be used: {error}; choose another --state-dir", path=self.path)


def _code(error: BaseException | None) -> int:
    """Which error of SQLite's it is, 0 for all others."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


class WouldWaitError(Exception):
    """Another thread or process is in a transaction, or the disk is waited for."""


class _Transaction:
    """No generator with `contextmanager`, which would take longer than what a step does in it."""

    __slots__ = ("_database", "_outermost", "_wait")

    def __init__(self, database: Database, wait: bool) -> None:
        self._database = database
        self._wait = wait

    def begin(self) -> sqlite3.Connection:
        database = self._database
        if (database._fsync and not self._wait) or not database._lock.acquire(self._wait):
            raise WouldWaitError
        try:
            if database._attempt is not None:
                database.undo()
            connection = database._connection
            self._outermost = not database._is_in_transaction
            if self._outermost:
                self._begin(connection)
                database._is_in_transaction = True
            return connection
        except sqlite3.Error as error:
            database._lock.release()
            raise database._told(error) from error
        except BaseException:
            database._lock.release()
            raise

    def _begin(self, connection: sqlite3.Connection) -> None:
        """SQLite's own waiting is a setting of the connection, not of a transaction."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # one that could not be undone then, as the disk was gone
        until = 0.0
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY:
                    raise
                if not self._wait:
                    raise WouldWaitError from None
                until = until or time.monotonic() + BUSY_SECONDS
                if time.monotonic() > until:
                    raise
            time.sleep(_RETRY_SECONDS)

    def end(self, error: BaseException | None) -> None:
        """Commit, or undo it because of an error."""
        database = self._database
        try:
            if self._outermost:
                database._is_in_transaction = False
                if error is None:
                    try:
                        database._connection.execute("COMMIT")
                    except sqlite3.Error as failure:
                        error = failure
                if error is not None:
                    self._undo(database._connection, error)
        finally:
            database._lock.release()
        if isinstance(error, sqlite3.Error):
            raise database._told(error) from error

    __enter__ = begin

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        self.end(error)

    def _undo(self, connection: sqlite3.Connection, error: BaseException) -> None:
        with suppress(sqlite3.Error):  # the connection may be closed, or the disk be gone
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if _code(error) == sqlite3.SQLITE_FULL:
                # What filled the disk may be our own log, which is else emptied at 4 MB.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _file_system(directory: str) -> str:
    """The type of the file system that a directory is on, by the number of its mount."""
    descriptor = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        told = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii")
    finally:
        os.close(descriptor)
    number = next(line.split()[1] for line in told.splitlines() if line.startswith("mnt_id:"))
    # None: of another mount namespace
    return next((mounted.kind for mounted in mounts() if mounted.number == number), "")
