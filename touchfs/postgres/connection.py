"""A connection to PostgreSQL that understands the statements which SQLite does, and the translation of its errors.

Statements are sent together, when somebody asks for a result: a step waits for the server three times, whatever the
number of its statements.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors

from touchfs.core.errors import FullError, StateError
from touchfs.postgres.place import DatabaseAddress
from touchfs.postgres.watchdog import Watchdog

CONNECT_SECONDS = 3
# A transaction that takes longer has lost its server: what the server itself allows takes less.
ANSWER_SECONDS = 10.0
# How long a statement may wait for other machines. If a process stops inside a transaction, the server ends that.
_SETTINGS = {
    "lock_timeout": "7s",
    "statement_timeout": "8s",
    "idle_in_transaction_session_timeout": "5s",
}
# A server that is silently gone is noticed within this time, which libpq passes to TCP.
_TCP = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}
_DURABLE = ("on", "remote_apply")
_OLDEST = 12_00_00
DAMAGED = "its tables are damaged: restore them, or choose another --state-name"
# SQLSTATEs of this class: a table, a column or an operator of a statement does not exist.
_NOT_OUR_TABLES = "42"

# What psycopg logs are second errors after one that it raises, and they may have values of rows.
logging.getLogger("psycopg").setLevel(logging.CRITICAL)


class LostConnectionError(StateError):
    """The database does not answer or is read-only, or the connection to it broke. That may be over at any time."""


class LeaseEndedError(StateError):
    """The lease of this mount has ended, and its rows are deleted."""


class PostgresRows:
    """The result of a statement. Asking for it sends all statements up to here, and waits for the server."""

    __slots__ = ("_connection", "_cursor")

    def __init__(self, connection: PostgresConnection, cursor: psycopg.Cursor[Any]) -> None:
        self._connection = connection
        self._cursor = cursor

    def fetchone(self) -> Any:
        """The next row, or None."""
        return self.received().fetchone()

    def fetchall(self) -> list[Any]:
        return self.received().fetchall()

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""
        return self.received().rowcount

    def received(self) -> psycopg.Cursor[Any]:
        """The cursor, after the server has answered."""
        self._connection.flush()
        return self._cursor


class PostgresConnection:
    """All methods raise psycopg.Error, which `state_error` translates. The watchdog is at work at first.

    Statements are kept here, not sent and left without their end: between those, a server has no limit for how long a
    client that is stopped may hold its locks.
    """

    def __init__(self, address: DatabaseAddress) -> None:
        settings: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "application_name": "touchfs", **_TCP}
        settings.update(address.parameters)
        self._connection: psycopg.Connection[Any] = psycopg.connect(**settings, autocommit=True)
        self._waiting: list[tuple[psycopg.Cursor[Any], bytes, Sequence[Any]]] = []
        self.watchdog = Watchdog(self._connection.fileno(), ANSWER_SECONDS)
        self.watchdog.begin()
        try:
            for name, value in _SETTINGS.items():
                self.execute(f"SET {name} = '{value}'")
            self.flush()
        except BaseException:
            self.close()
            raise

    def check(self, path: str) -> None:
        """Raise StateError if the server is too old, or may lose a step that it has confirmed."""
        if self._connection.info.server_version < _OLDEST:
            raise StateError("is a PostgreSQL before version 12: update it", path=path)
        (how,) = self.execute("SHOW synchronous_commit").fetchone()
        if how not in _DURABLE:
            message = f"synchronous_commit is {how}, so a crash loses steps: set it to on for this database"
            raise StateError(message, path=path)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> PostgresRows:
        """Keep a statement with these values for its `?`, to be sent with those that follow."""
        cursor = self._connection.cursor()
        self._waiting.append((cursor, _translated(statement), values))
        return PostgresRows(self, cursor)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        for values in rows:
            self.execute(statement, values)

    def flush(self) -> None:
        """Send what was kept, and wait for the results."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) == 1:  # costs less without a pipeline
            ((cursor, statement, values),) = waiting
            cursor.execute(statement, values)
        elif waiting:
            with self._connection.pipeline():
                for cursor, statement, values in waiting:
                    cursor.execute(statement, values)

    def commit(self) -> None:
        """Commit. A server answers COMMIT with ROLLBACK, and no error, if a statement before it has failed."""
        cursor = self.execute("COMMIT").received()
        if cursor.statusmessage != "COMMIT":
            raise errors.InFailedSqlTransaction("a statement before COMMIT has failed")

    def close(self) -> None:
        """Disconnect."""
        self.watchdog.close()
        self._connection.close()


@lru_cache(256)
def _translated(statement: str) -> bytes:
    return statement.replace("?", "%s").encode()


def state_error(error: psycopg.Error, path: str) -> StateError:
    """Translate an error of psycopg. Only refused connections and missing rights keep their text: other texts may have
    values of rows.
    """
    if isinstance(error, errors.ForeignKeyViolation):
        return LeaseEndedError("the lease of this mount has ended: try again", path=path)
    if isinstance(error, errors.LockNotAvailable | errors.QueryCanceled):
        return StateError("other machines have locked it for long: look for a process that hangs", path=path)
    if isinstance(error, errors.DiskFull):
        return FullError("the database's disk is full: nothing was changed", path=path)
    if isinstance(error, errors.InsufficientPrivilege):
        rights = "its user needs SELECT, INSERT, UPDATE and DELETE on the tables: see docs/fleets.md"
        return StateError(f"{error.diag.message_primary or 'permission denied'}: {rights}", path=path)
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return LostConnectionError("the database is read-only now: is this a standby?", path=path)
    if (error.sqlstate or "").startswith(_NOT_OUR_TABLES):
        return StateError(DAMAGED, path=path)
    if isinstance(error, psycopg.OperationalError):
        return LostConnectionError(f"the database cannot be reached: {_reason(error)}", path=path)
    return StateError(f"cannot be used: {type(error).__name__} {error.sqlstate or ''}".rstrip(), path=path)


def _reason(error: psycopg.Error) -> str:
    """The last statement of libpq's text, which is about the last server that was tried. Indented lines explain it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\t")]
    return lines[-1].removeprefix("FATAL:").strip()[:200] if lines else "no reason given"
