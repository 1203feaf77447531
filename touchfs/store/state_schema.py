"""The tables of the state store, and the version that they have."""

from __future__ import annotations

import secrets
import sqlite3

from touchfs.core.errors import StateError

VERSION = 5
_FREE_SIZE = 1 << 16

# `written` has no foreign key to `open`: checking it for each deleted open would take two thirds of the time.
_SCHEMA = """
CREATE TABLE shard (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    path     BLOB NOT NULL,
    identity TEXT NOT NULL,
    nth      INTEGER NOT NULL,
    UNIQUE (path, identity, nth)
);
CREATE TABLE mount (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    pid     INTEGER NOT NULL,
    started TEXT NOT NULL,
    boot    TEXT NOT NULL,
    pids    TEXT NOT NULL
);
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
CREATE TABLE open (
    id      INTEGER PRIMARY KEY,
    text    BLOB,
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
CREATE TABLE store (
    identity BLOB NOT NULL
);
"""


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the tables in a database; 0 if it has none."""
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    return int(version)


def make_tables(connection: sqlite3.Connection, path: str) -> None:
    """Create the tables, unless another process has. Raises StateError for a store of another version."""
    found = version_of(connection)
    if found == VERSION:
        return
    if found != 0:
        raise StateError(f"made by another touchfs (version {found}): choose another --state-dir", path=path)
    for statement in filter(str.strip, _SCHEMA.split(";")):
        connection.execute(statement)
    connection.execute("INSERT INTO store VALUES (?)", (secrets.token_bytes(16),))
    # Leave free pages: on a full disk the file cannot grow, and the log can only be emptied into existing pages.
    connection.execute("INSERT INTO open (id, text) VALUES (0, zeroblob(?))", (_FREE_SIZE,))
    connection.execute("DELETE FROM open WHERE id = 0")
    connection.execute(f"PRAGMA user_version = {VERSION}")
