"""Values written to control files: JSON, in as many pieces as the writer likes.

The bytes written to one open are collected until they are one value; the write that completes it applies it, in the
same transaction. What no value begins with is refused, and forgotten. Pieces count in the order they come, whatever
their offsets: those of `>>` are no ones of ours. A request may be sent again when a worker has died. So a piece that an
open has had already, at the same offset, is not taken again if since then requests were sent again; its answer is the
first one's. If none were, somebody writes the same value twice, and means it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple

from touchfs.errors import FormatError, UsageError
from touchfs.store.json_prefix import outcome_of
from touchfs.store.opens import Opens
from touchfs.token import from_json

# Far more than any spec or state needs.
VALUE_MAX = 1 << 20


class Piece(NamedTuple):
    """`resent` is how often requests had been sent again when it came."""

    offset: int
    data: bytes
    resent: int = 0

    @property
    def hash(self) -> bytes:
        return hashlib.blake2b(self.data, digest_size=16).digest()


def write(opens: Opens, open_id: int, piece: Piece, apply: Callable[[Any], None]) -> str:
    """Take a piece, and call `apply` with the value that it completes.

    Returns what was wrong with the piece when it came first, if it comes again; else nothing.
    """

    def act(connection: sqlite3.Connection, row: int) -> str:
        answer = _answer(connection, row, piece)
        if answer is None:
            _take(connection, row, piece, apply)
        return answer or ""

    return opens.change(open_id, act) or ""


def refuse(opens: Opens, open_id: int, piece: Piece, error: str) -> None:
    """Forget what was begun, and remember what was wrong, in case the piece is sent again."""

    def act(connection: sqlite3.Connection, row: int) -> None:
        if _answer(connection, row, piece) is None:
            connection.execute("UPDATE open SET pending = x'' WHERE id = ?", (row,))
            _note(connection, row, piece, error)

    opens.change(open_id, act)


def _take(connection: sqlite3.Connection, row: int, piece: Piece, apply: Callable[[Any], None]) -> None:
    (begun,) = connection.execute("SELECT pending FROM open WHERE id = ?", (row,)).fetchone()
    pending = bytes(begun) + piece.data
    whole, value = _parse(pending)
    if whole:
        apply(value)
        pending = b""
    connection.execute("UPDATE open SET pending = ? WHERE id = ?", (pending, row))
    _note(connection, row, piece, "")


def _parse(data: bytes) -> tuple[bool, Any]:
    """Whether it is one value, and which."""
    if len(data) > VALUE_MAX:
        raise UsageError(f"a value is of at most {VALUE_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.end < len(data) or error.reason != "unexpected end of data":
            raise FormatError("not UTF-8", offset=error.start) from error
        text = data[: error.start].decode() + "\ufffd"  # the rest of the character is yet to come
    outcome = outcome_of(text)
    return outcome == "value", from_json(text) if outcome == "value" else None


def _answer(connection: sqlite3.Connection, row: int, piece: Piece) -> str | None:
    """What was wrong with this piece when it came first, nothing if it was taken; None if it comes first now."""
    found = connection.execute(
        "SELECT resent, error FROM written WHERE open = ? AND offset = ? AND hash = ?",
        (row, piece.offset, piece.hash),
    ).fetchone()
    if found is None or found[0] == piece.resent:
        return None
    _note(connection, row, piece, found[1])
    return str(found[1])


def _note(connection: sqlite3.Connection, row: int, piece: Piece, error: str) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO written (open, offset, hash, resent, error) VALUES (?, ?, ?, ?, ?)",
        (row, piece.offset, piece.hash, piece.resent, error),
    )
