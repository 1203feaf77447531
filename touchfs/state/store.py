"""The state store: one small SQLite file for each dataset, and the only thing about a mount that changes.

It holds which id each shard was given, the plans under `merged/`, the named iterators (`touchfs.state.iterators`), and
the opens of control files (`touchfs.state.opens`) with what was written to them (`touchfs.state.writes`).

Shard ids are given for (path, identity of the files) and never again for anything else, so an inode number of a shard
that has changed is never that of the new one. A shard that a dataset lists twice has two.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from touchfs.errors import FullError
from touchfs.state.database import Database
from touchfs.state.processes import start_of, system

VERSION = 4
PLANS_MAX = 1000

# `written` has no reference to `open`, which would be looked for at each open that is deleted: two thirds of the time.
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
    open   INTEGER NOT NULL,
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


class StateStore(Database):
    """The state store at `path`. As a `Database`."""

    def __init__(self, path: str, *, fsync: bool = False) -> None:
        super().__init__(path, _SCHEMA, VERSION, fsync=fsync)

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
            connection.execute("DELETE FROM written WHERE open NOT IN (SELECT id FROM open)")
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
