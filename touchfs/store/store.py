"""The state store: one small SQLite file for each dataset, with everything that must survive a mount.

It holds the id of each shard, the named iterators (`touchfs.iterators.iterators`), and for each open file of theirs
(`touchfs.store.opens`) the text that a step produced and the values written to it (`touchfs.store.writes`).

A shard id belongs to a (path, identity of the files) and is never reused, so a changed shard never has the inode
numbers of the old one. A shard that a dataset lists twice has two ids.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from touchfs.core.errors import StateError
from touchfs.posix.processes import start_time, system
from touchfs.store.database import Database
from touchfs.store.iterator_store import Connection, IteratorStore
from touchfs.store.open_table import rows_of
from touchfs.store.state_schema import VERSION, make_tables, version_of


class StateStore(Database):
    """The state store at `path`, a `Database`. With an `identity` the file must be the store of that identity."""

    def __init__(self, path: str, *, fsync: bool = False, later: bool = False, identity: bytes | None = None) -> None:
        self.identity = identity
        super().__init__(path, fsync=fsync, later=later)

    def _check_content(self, connection: sqlite3.Connection) -> None:
        if self.identity is None and version_of(connection) != VERSION:
            with self.transaction() as connection:
                make_tables(connection, self.path)
        is_ours = version_of(connection) == VERSION
        found = connection.execute("SELECT identity FROM store").fetchone()[0] if is_ours else b""
        if self.identity not in (None, found):
            raise StateError("is not the store that was mounted: put that back, or mount again", path=self.path)
        self.identity = found

    def shard_ids(self, shards: Sequence[tuple[str, str]]) -> list[int]:
        """Return a different id for each shard, given as (path, identity). New shards get new ids."""
        return self.run(lambda connection: _shard_ids(connection, shards))

    @property
    def directory(self) -> str:
        return os.path.dirname(self.path)

    def enter(self, connection: Connection, pid: int) -> int:
        """Like `add_mount`, inside a transaction."""
        return add_mount(connection, pid)

    def add_mount(self, pid: int) -> int:
        """Return the number of the mount that the process `pid` serves, a new one if necessary.

        The rows of mounts whose process has ended are deleted.
        """
        return self.run(lambda connection: add_mount(connection, pid))

    def remove_mount(self, pid: int) -> None:
        """Delete all rows of the mount that the process `pid` served."""

        def act(connection: sqlite3.Connection) -> None:
            _delete_mount(connection, add_mount(connection, pid))

        self.run(act)


def add_mount(connection: Connection, pid: int) -> int:
    """Return the number of a mount, as `StateStore.add_mount`, inside a transaction."""
    _delete_ended_mounts(connection)
    boot, pids = system()
    row = pid, start_time(pid), boot, pids
    where = "pid = ? AND started = ? AND boot = ? AND pids = ?"
    found = connection.execute(f"SELECT id FROM mount WHERE {where}", row).fetchone()
    if found is not None:
        return int(found[0])
    added = "INSERT INTO mount (pid, started, boot, pids) VALUES (?, ?, ?, ?) RETURNING id"
    return int(connection.execute(added, row).fetchone()[0])


def _delete_ended_mounts(connection: Connection) -> None:
    boot, pids = system()
    for mount, pid, started, its_boot, its_pids in connection.execute("SELECT * FROM mount").fetchall():
        # A process in another container is invisible to us: only a reboot proves that it has ended.
        if its_boot != boot or (its_pids == pids and start_time(pid) != started):
            _delete_mount(connection, mount)


def _delete_mount(connection: Connection, mount: int) -> None:
    connection.execute("DELETE FROM written WHERE open BETWEEN ? AND ?", rows_of(mount))
    connection.execute("DELETE FROM open WHERE id BETWEEN ? AND ?", rows_of(mount))
    connection.execute("DELETE FROM mount WHERE id = ?", (mount,))


def _shard_ids(connection: sqlite3.Connection, shards: Sequence[tuple[str, str]]) -> list[int]:
    ids, seen = [], Counter[tuple[str, str]]()
    for shard in shards:
        seen[shard] += 1
        path, identity = shard
        row = os.fsencode(path), identity, seen[shard]
        known = connection.execute("SELECT id FROM shard WHERE path = ? AND identity = ? AND nth = ?", row).fetchone()
        if known is None:
            inserted = connection.execute("INSERT INTO shard (path, identity, nth) VALUES (?, ?, ?)", row)
            known = (inserted.lastrowid,)
        ids.append(int(known[0]))
    return ids


if TYPE_CHECKING:
    _: type[IteratorStore] = StateStore
