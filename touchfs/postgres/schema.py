"""The tables of a dataset in PostgreSQL: a schema of their own, with the names that SQLite's have.

`iterator`, `removed_iterator`, `open` and `written` are as in `touchfs.store.state_schema`. A row of `open` has no
text: it says that the step of an open file happened, and its `text` is the number of the try that did it.

    store    one row: the version, the dataset's fingerprint, and the key of the lock that all changes take
    mount    the mounts that use the store, each with a lease by the database's clock
    process  the processes that use it, each with the number of its last change: a connection that is lost during
             COMMIT is settled by looking for it
"""

from __future__ import annotations

import secrets

from touchfs.core.errors import StateError
from touchfs.postgres.connection import DAMAGED, PostgresConnection
from touchfs.postgres.place import FleetPlace

VERSION = 1
# Two processes may not create schemas at once.
_CREATE_LOCK = 0x746F756368

_SCHEMA = """
CREATE TABLE store (version integer NOT NULL, fingerprint text NOT NULL, lock bigint NOT NULL);
CREATE TABLE mount (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token bytea NOT NULL UNIQUE,
    lease timestamptz NOT NULL
);
CREATE TABLE process (
    id    bigint PRIMARY KEY,
    mount bigint REFERENCES mount (id) ON DELETE CASCADE,
    last  bigint NOT NULL,
    seen  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
CREATE TABLE iterator (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  bytea NOT NULL UNIQUE,
    spec  text NOT NULL,
    base  text,
    steps bigint NOT NULL DEFAULT 0,
    error text NOT NULL DEFAULT '',
    made  double precision NOT NULL,
    maker text NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE removed_iterator (
    name    bytea PRIMARY KEY,
    removed double precision NOT NULL,
    remover text NOT NULL
);
CREATE TABLE open (
    id      bigint PRIMARY KEY,
    text    bytea,
    pending bytea NOT NULL DEFAULT ''
);
CREATE TABLE written (
    open     bigint NOT NULL,
    "offset" bigint NOT NULL,
    hash     bytea NOT NULL,
    resent   bigint NOT NULL,
    error    text NOT NULL,
    PRIMARY KEY (open, "offset", hash)
);
"""


# All users of a database can read its catalogs, so this needs no rights.
_LOOK = """
SELECT n.oid IS NOT NULL,
       EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace = n.oid AND relname = 'store'),
       pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
       pg_catalog.has_schema_privilege(n.oid, 'CREATE'),
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
FROM (VALUES (?)) wanted (name) LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.name
"""


def enter_schema(connection: PostgresConnection, place: FleetPlace, fingerprint: str | None, *, create: bool) -> int:
    """Use the schema of a place, and return the key of its lock. With `create` the schema and its tables are made if
    there are none, for the dataset of this fingerprint.

    Raises StateError if there are none, if they are damaged, of another version or another dataset, and if the user
    lacks a right.
    """
    _, has_tables = _look(connection, place, create=create)
    if create and not has_tables:
        connection.execute("BEGIN")
        connection.execute("SELECT pg_advisory_xact_lock(?)", (_CREATE_LOCK,)).fetchone()
        has_schema, has_tables = _look(connection, place, create=True)
        if not has_schema:
            connection.execute(f'CREATE SCHEMA "{place.schema}"')
        if not has_tables:
            connection.execute(f'SET LOCAL search_path TO "{place.schema}"')
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
            row = VERSION, fingerprint, secrets.randbits(62)
            connection.execute("INSERT INTO store VALUES (?, ?, ?)", row)
        connection.execute("COMMIT")
        connection.flush()
    elif not has_tables:
        raise StateError("is gone from the database: put it back, or mount again", path=place.shown)
    connection.execute(f'SET search_path TO "{place.schema}"')
    rows = connection.execute("SELECT version, fingerprint, lock FROM store").fetchall()
    if [tuple(map(type, row)) for row in rows] != [(int, str, int)]:
        raise StateError(DAMAGED, path=place.shown)
    ((version, found, lock),) = rows
    if version != VERSION:
        raise StateError(f"made by another touchfs (version {version}): choose another --state-name", path=place.shown)
    if fingerprint not in (None, found):
        message = "belongs to another dataset (other names, counts or sizes): choose another --state-name"
        raise StateError(message, path=place.shown)
    return int(lock)


def _look(connection: PostgresConnection, place: FleetPlace, *, create: bool) -> tuple[bool, bool]:
    """Return whether there is a schema, and whether it has tables. Raises StateError if the user may not use them, or
    not `create` them.
    """
    found = connection.execute(_LOOK, (place.schema,)).fetchone()
    has_schema, has_tables, may_use, may_create, may_create_schema = found
    lacking = ""
    if has_schema and not may_use:
        lacking = f"USAGE on the schema {place.schema}"
    elif has_schema and create and not (has_tables or may_create):
        lacking = f"CREATE on the schema {place.schema}, which has no tables"
    elif create and not (has_schema or may_create_schema):
        lacking = f"CREATE on the database, which has no schema {place.schema}"
    if lacking:
        raise StateError(f"its user lacks {lacking}: see docs/fleets.md", path=place.shown)
    return has_schema, has_tables
