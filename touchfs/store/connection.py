"""Connections to a SQLite file, and the translation of SQLite's errors."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

from touchfs.core.errors import FullError, StateError
from touchfs.posix.mounts import NETWORK_FILE_SYSTEMS, mounts
from touchfs.store.patience import Patience
from touchfs.store.place import check_database, prepare_database

# Bytes that SQLite allocates for its shared memory at a time.
_SHARED_MEMORY_SIZE = 32768
_RETRY_SECONDS = 0.005


class DiskFullError(FullError):
    """SQLite found no room on the disk. SQLite's own log may be filling it."""


def open_connection(path: str, patience: Patience, *, create: bool) -> sqlite3.Connection:
    """Connect to the file at `path`. Raises StateError."""
    directory = os.path.dirname(path) or "."
    try:
        if create:
            prepare_database(path)
        else:
            check_database(path)
        kind = file_system(directory)
    except OSError as error:
        if not create and isinstance(error, FileNotFoundError | NotADirectoryError):
            raise StateError("is gone: put it back, or mount again", path=directory) from error
        raise StateError(f"cannot be used: {error.strerror}; choose another --state-dir", path=directory) from error
    if kind in NETWORK_FILE_SYSTEMS:  # SQLite's locks and its shared memory file cannot be relied on there
        raise StateError(f"the state cannot be kept on {kind}: choose a local --state-dir", path=directory)
    if not create and not os.path.exists(path):
        raise StateError("is gone: put it back, or mount again", path=path)
    name = f"file:{quote(os.path.abspath(path))}?mode={'rwc' if create else 'rw'}"
    connection = None
    try:
        connection = sqlite3.connect(
            name, uri=True, timeout=patience.left, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        _use_log(connection, patience)
        # A committed transaction survives the end of any process. A power cut may lose the latest ones, and it also
        # ends all mounts, so waiting for the disk is optional, and done after the transaction (`log_sync`).
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise state_error(error, path, patience) from error
    return connection


def _use_log(connection: sqlite3.Connection, patience: Patience) -> None:
    """Keep a write-ahead log. Where several processes turn a new file to that at once, SQLite tells all but one at once
    that it is locked, however long they are willing to wait.
    """
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY or not patience.left:
                raise
        time.sleep(_RETRY_SECONDS)


def state_error(error: sqlite3.Error, path: str, patience: Patience) -> StateError:
    """Translate an error of SQLite."""
    code = code_of(error)
    # SQLite reports a lack of room for its shared memory as SQLITE_IOERR.
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(os.path.dirname(path) or ".")):
        return DiskFullError("the disk is full: nothing was changed", path=path)
    if code == sqlite3.SQLITE_BUSY:
        return busy_error(path, patience)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StateError(f"damaged ({error}): unmount what uses it, and delete it", path=path)
    return StateError(f"cannot be used: {error}; choose another --state-dir", path=path)


def _is_full(directory: str) -> bool:
    try:
        disk = os.statvfs(directory)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _SHARED_MEMORY_SIZE


def busy_error(path: str, patience: Patience) -> StateError:
    """Return the error for a lock that other processes did not release in time."""
    message = f"other processes have locked it for {patience.seconds:.0f} s: look for a stopped touchfs process"
    return StateError(message, path=path)


def code_of(error: BaseException | None) -> int:
    """Return the primary result code of an error of SQLite, and 0 for all other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def file_system(directory: str) -> str:
    """Return the type of a directory's file system, found by its mount ID; "" if it cannot be determined."""
    descriptor = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii").splitlines()
    finally:
        os.close(descriptor)
    number = next(line.split()[1] for line in lines if line.startswith("mnt_id:"))
    # No match: the mount is in another mount namespace.
    return next((mounted.kind for mounted in mounts() if mounted.number == number), "")
