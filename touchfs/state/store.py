"""The state store: one small SQLite file for each dataset, and the only thing about a mount that changes.

It holds which id each shard was given, the plans under `merged/`, the named iterators (`touchfs.state.iterators`), and
the opens of control files (`touchfs.state.opens`) with what was written to them (`touchfs.state.writes`). Any number
of processes use it at once, each on a connection of its own, made after any fork. Within a process one thread at a
time: while one thread's statement is open on a connection, another thread's transaction on it is not committed yet,
although it looks so (found by killing workers: an open was answered, and its row was gone).

Shard ids are given for (path, identity of the files) and never again for anything else, so an inode number of a shard
that has changed is never that of the new one. A shard that a dataset lists twice has two.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from touchfs.errors import FullError, StateError
from touchfs.source.mounts import mounts
from touchfs.state.processes import start_of, system

VERSION = 4
PLANS_MAX = 1000
BUSY_SECONDS = 30.0
_RETRY_SECONDS = 0.0005

# File systems on which SQLite's locks or its shared memory file cannot be relied on.
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs", "ncpfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs", "fuse.touchfs"}
)

_SCHEMA = """
CREATE TABLE shard (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    path     BLOB NOT NULL,
    identity TEXT NOT NULL,
    nth      INTEGER NOT NULL,
    UNIQUE (path, identity, nth)
);
CREATE TABLE plan (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
);
CREATE TABLE mount (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    pid     INTEGER NOT NULL,
    started TEXT NOT NULL,
    boot    TEXT NOT NULL,
    pids    TEXT NOT NULL
);
CREATE TABLE open (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    mount INTEGER NOT NULL REFERENCES mount (id) ON DELETE CASCADE,
    text  BLOB,
    pending BLOB NOT NULL DEFAULT x''
);
CREATE TABLE written (
    open   INTEGER NOT NULL REFERENCES open (id) ON DELETE CASCADE,
    offset INTEGER NOT NULL,
    hash   BLOB NOT NULL,
    resent INTEGER NOT NULL,
    error  TEXT NOT NULL,
    PRIMARY KEY (open, offset, hash)
) WITHOUT ROWID;
CREATE TABLE iterator (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    name  BLOB NOT NULL UNIQUE,
    spec  TEXT NOT NULL,
    base  TEXT,
    steps INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    made  REAL NOT NULL,
    maker TEXT NOT NULL
);
CREATE TABLE removed_iterator (
    name    BLOB PRIMARY KEY,
    removed REAL NOT NULL,
    remover TEXT NOT NULL
);
"""


T = TypeVar("T")


class StateStore:
    """A connection to the state store at `path`, which is made if need be. With `fsync` each transaction waits for the
    disk. Raises StateError.
    """

    def __init__(self, path: str, *, fsync: bool = False) -> None:
        self.path = path
        self._fsync = fsync
        self._lock = threading.RLock()
        self._attempt: Generator[Any, None, None] | None = None
        directory = os.path.dirname(path) or "."
        try:
            os.makedirs(directory, exist_ok=True)
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
                self._prepare()
            except BaseException:
                self.close()
                raise

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        # What a transaction wrote survives any process; a power cut may take the last ones, and the mounts with them,
        # unless each is to wait for the disk.
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsync else 'NORMAL'}")
        self._connection.execute("PRAGMA foreign_keys = ON")
        with self.transaction() as connection:
            ((version,),) = connection.execute("PRAGMA user_version").fetchall()
            if version == 0:
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {VERSION}")
        self._connection.execute("PRAGMA busy_timeout = 0")  # `_Transaction` waits
        if version not in (0, VERSION):
            raise StateError(f"made by another touchfs (version {version}): choose another --state-dir", path=self.path)

    def close(self) -> None:
        self.undo()
        self._connection.close()

    def shard_ids(self, shards: Sequence[tuple[str, str]]) -> list[int]:
        """The ids of shards, given as (path, identity), in order; new ones are given here. All are different."""
        ids, seen = [], Counter[tuple[str, str]]()
        with self.transaction() as connection:
            for shard in shards:
                seen[shard] += 1
                path, identity = shard
                wanted = os.fsencode(path), identity, seen[shard]
                known = connection.execute(
                    "SELECT id FROM shard WHERE path = ? AND identity = ? AND nth = ?", wanted
                ).fetchone()
                if known is None:
                    inserted = connection.execute("INSERT INTO shard (path, identity, nth) VALUES (?, ?, ?)", wanted)
                    known = (inserted.lastrowid,)
                ids.append(int(known[0]))
        return ids

    def add_mount(self, pid: int) -> int:
        """The number of a new mount, served by this process.

        Opens of mounts whose process has ended are deleted, and all plans if there is no other mount.
        """
        boot, pids = system()
        with self.transaction() as connection:
            known = connection.execute("SELECT id, pid, started, boot, pids FROM mount").fetchall()
            for mount, other, started, its_boot, its_pids in known:
                # Of a process in another container, which we cannot see, only a reboot tells that it has ended.
                if its_boot != boot or (its_pids == pids and start_of(other) != started):
                    connection.execute("DELETE FROM mount WHERE id = ?", (mount,))
            if not connection.execute("SELECT 1 FROM mount").fetchone():
                connection.execute("DELETE FROM plan")
            told = pid, start_of(pid), boot, pids
            inserted = connection.execute("INSERT INTO mount (pid, started, boot, pids) VALUES (?, ?, ?, ?)", told)
            return int(inserted.lastrowid or 0)

    def plan_number(self, name: str) -> int:
        """The number of a plan, from 1 on; a new one is given here. Raises FullError when `PLANS_MAX` are given."""
        with self.transaction() as connection:
            known = connection.execute("SELECT number FROM plan WHERE name = ?", (name,)).fetchone()
            if known is None:
                (count,) = connection.execute("SELECT count(*) FROM plan").fetchone()
                if count >= PLANS_MAX:
                    raise FullError(f"{PLANS_MAX} plans are registered: unmount and mount again")
                known = (connection.execute("INSERT INTO plan (name) VALUES (?)", (name,)).lastrowid,)
            return int(known[0])

    def plans(self) -> list[tuple[str, int]]:
        """All plans with their numbers, in the order they were registered."""
        with self.transaction() as connection:
            return list(connection.execute("SELECT name, number FROM plan ORDER BY number"))

    def transaction(self, *, wait: bool = True) -> _Transaction:
        """All that is done inside happens, or nothing. One inside another is a part of it.

        Without `wait` it raises WouldWaitError when another thread or process is in one, or the disk is waited for.
        """
        return _Transaction(self, wait)

    def attempt(self, act: Callable[[sqlite3.Connection], T]) -> T:
        """Act in a transaction that `commit` is to end. Whatever else is done with the store before undoes it, and so
        does `undo`; nobody else can change the store until then. Raises WouldWaitError, and what the act raises.

        All three are for one thread.
        """

        def attempting() -> Generator[T, None, None]:
            with self.transaction(wait=False) as connection:
                yield act(connection)

        attempt = attempting()
        made = next(attempt)
        self._attempt = attempt
        return made

    def commit(self) -> bool:
        """Whether there was an attempt, which is done then."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return False
        next(attempt, None)
        return True

    def undo(self) -> None:
        """The attempt, if there is one."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.close()

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

    __slots__ = ("_outermost", "_store", "_wait")

    def __init__(self, store: StateStore, wait: bool) -> None:
        self._store = store
        self._wait = wait

    def __enter__(self) -> sqlite3.Connection:
        store = self._store
        if (store._fsync and not self._wait) or not store._lock.acquire(self._wait):
            raise WouldWaitError
        try:
            if store._attempt is not None:
                store.undo()
            connection = store._connection
            self._outermost = not connection.in_transaction
            if self._outermost:
                self._begin(connection)
            return connection
        except sqlite3.Error as error:
            store._lock.release()
            raise store._told(error) from error
        except BaseException:
            store._lock.release()
            raise

    def _begin(self, connection: sqlite3.Connection) -> None:
        """SQLite's own waiting is a setting of the connection, not of a transaction."""
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        store = self._store
        try:
            if self._outermost:
                if error is None:
                    try:
                        store._connection.execute("COMMIT")
                    except sqlite3.Error as failure:
                        error = failure
                if error is not None:
                    self._undo(store._connection, error)
        finally:
            store._lock.release()
        if isinstance(error, sqlite3.Error):
            raise store._told(error) from error

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
