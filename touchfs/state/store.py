"""The state store: one small SQLite file for each dataset, and the only thing about a mount that changes.

It holds which id each shard was given, and the opens of control files. Any number of processes use it at once, each
on a connection of its own, made after any fork. Within a process one thread at a time: while one thread's statement is
open on a connection, another thread's transaction on it is not committed yet, although it looks so (found by killing
workers: an open was answered, and its row was gone).

Shard ids are given for (path, identity of the files) and never again for anything else, so an inode number of a shard
that has changed is never that of the new one.

An *open* of a control file is a row from `open_file` to `release`, with the text that the first read made. Requests
may be sent twice, so each step here may be: an open that nobody learns of is deleted with its mount; a text is made
only for a row that is there and has none, so a read that runs again, even after the release, changes nothing.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from touchfs.errors import StateError

VERSION = 1
BUSY_SECONDS = 30.0

# File systems on which SQLite's locks or its shared memory file cannot be relied on.
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "beegfs", "gpfs", "ncpfs"}
    | {"fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.juicefs", "fuse.touchfs"}
)

_SCHEMA = """
CREATE TABLE shard (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    path     TEXT NOT NULL,
    identity TEXT NOT NULL,
    UNIQUE (path, identity)
);
CREATE TABLE mount (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    pid     INTEGER NOT NULL,
    started TEXT NOT NULL
);
CREATE TABLE open (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    mount INTEGER NOT NULL REFERENCES mount (id) ON DELETE CASCADE,
    file  TEXT NOT NULL,
    text  BLOB
);
"""


class StateStore:
    """A connection to the state store at `path`, which is made if need be. Raises StateError."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(f"cannot be made: {error.strerror}", path=path) from error
        kind = _file_system(os.path.dirname(path))
        if kind in NETWORK_FILE_SYSTEMS:
            raise StateError(f"the state cannot be kept on {kind}: choose a local --state-dir", path=path)
        try:
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            with self._transaction() as connection:
                ((version,),) = connection.execute("PRAGMA user_version").fetchall()
                if version == 0:
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.Error as error:
            raise StateError(f"cannot be used: {error}", path=path) from error
        if version not in (0, VERSION):
            raise StateError(f"is of version {version}, made by another touchfs: choose another --state-dir", path=path)

    def close(self) -> None:
        self._connection.close()

    def shard_ids(self, shards: Sequence[tuple[str, str]]) -> list[int]:
        """The ids of shards, given as (path, identity), in order; new ones are given here."""
        with self._transaction() as connection:
            known = {(path, identity): i for i, path, identity in connection.execute("SELECT id, path, identity FROM shard")}
            for shard in shards:
                if shard not in known:
                    inserted = connection.execute("INSERT INTO shard (path, identity) VALUES (?, ?)", shard)
                    known[shard] = int(inserted.lastrowid or 0)
        return [known[shard] for shard in shards]

    def add_mount(self, pid: int) -> int:
        """The number of a new mount, served by this process. Opens of mounts whose process has ended are deleted."""
        with self._transaction() as connection:
            for mount, other, started in connection.execute("SELECT id, pid, started FROM mount").fetchall():
                if _started(other) != started:
                    connection.execute("DELETE FROM mount WHERE id = ?", (mount,))
            inserted = connection.execute("INSERT INTO mount (pid, started) VALUES (?, ?)", (pid, _started(pid)))
            return int(inserted.lastrowid or 0)

    def open_file(self, mount: int, file: str) -> int:
        """The id of a new open of a control file."""
        with self._transaction() as connection:
            inserted = connection.execute("INSERT INTO open (mount, file) VALUES (?, ?)", (mount, file))
            return int(inserted.lastrowid or 0)

    def text(self, open_id: int, make: Callable[[str], bytes]) -> bytes:
        """The text of an open: what `make` makes of its file at the first read, and the same ever after."""
        with self._transaction() as connection:
            found = connection.execute("SELECT file, text FROM open WHERE id = ?", (open_id,)).fetchone()
            if found is None:
                return b""  # released already: nobody waits for this read
            file, text = found
            if text is None:
                text = make(file)
                connection.execute("UPDATE open SET text = ? WHERE id = ?", (text, open_id))
            return bytes(text)

    def release(self, open_id: int) -> None:
        with self._transaction() as connection:
            connection.execute("DELETE FROM open WHERE id = ?", (open_id,))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise StateError(f"cannot be used: {error}", path=self.path) from error
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")


def _started(pid: int) -> str:
    """When a process began, in ticks since boot, and which boot: with its pid, this names it for good."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
        return ticks + " " + Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, IndexError):
        return "ended"


def _file_system(directory: str) -> str:
    """The type of the file system that a directory is on, from the longest mount point above it."""
    directory = os.path.realpath(directory)
    best, kind = "", ""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            before, _, after = line.partition(" - ")
            point = before.split(" ")[4]
            inside = directory == point or directory.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, after.split(" ")[0]
    return kind
