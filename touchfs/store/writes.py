"""Values written to control files: JSON, in any number of pieces.

The bytes written to one open file are collected until they form a value; the write that completes the value applies it,
in the same transaction. Bytes that no value can begin with are refused and dropped. Pieces are used in the order of
their arrival, whatever their offsets, which `>>` chooses by the size of the file. The kernel resends requests when a
worker has died. So a piece that an open file has had before, at the same offset, is ignored if requests were resent
since then, and gets the same answer as at first. If none were resent, the writer deliberately writes the value twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.token import from_json
from touchfs.store.iterator_store import Connection
from touchfs.store.json_prefix import outcome_of
from touchfs.store.opens import Opens

# Far more than any spec or state needs.
VALUE_MAX = 1 << 20

_OR_UPDATE = 'ON CONFLICT (open, "offset", hash) DO UPDATE SET resent = excluded.resent, error = excluded.error'


class Piece(NamedTuple):
    """A piece of a written value. `resent` counts how often requests had been resent when it arrived."""

    offset: int
    data: bytes
    resent: int = 0

    @property
    def hash(self) -> bytes:
        """The hash of the data, 16 bytes."""
        return hashlib.blake2b(self.data, digest_size=16).digest()


def write(opens: Opens, open_id: int, piece: Piece, apply: Callable[[Any], None]) -> str:
    """Take a piece, and call `apply` with the value if the piece completes one.

    Returns the error text of a resent piece that was refused at first, otherwise "". Raises FormatError or UsageError
    for a new piece that cannot be part of a value, and the errors of `apply`.
    """

    def act(connection: Connection, row: int) -> str:
        answer = _answer(connection, row, piece)
        if answer is None:
            _take(connection, row, piece, apply)
        return answer or ""

    return opens.change(open_id, act) or ""


def refuse(opens: Opens, open_id: int, piece: Piece, error: str) -> None:
    """Drop an incomplete value, and record the error in case the piece is resent."""

    def act(connection: Connection, row: int) -> None:
        if _answer(connection, row, piece) is None:
            connection.execute("UPDATE open SET pending = ? WHERE id = ?", (b"", row))
            _note(connection, row, piece, error)

    opens.change(open_id, act)


def _take(connection: Connection, row: int, piece: Piece, apply: Callable[[Any], None]) -> None:
    (earlier,) = connection.execute("SELECT pending FROM open WHERE id = ?", (row,)).fetchone()
    pending = bytes(earlier) + piece.data
    is_complete, value = _parse(pending)
    if is_complete:
        apply(value)
        pending = b""
    connection.execute("UPDATE open SET pending = ? WHERE id = ?", (pending, row))
    _note(connection, row, piece, "")


def _parse(data: bytes) -> tuple[bool, Any]:
    """Return (is it a complete value, the value)."""
    if len(data) > VALUE_MAX:
        raise UsageError(f"a value is of at most {VALUE_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.end < len(data) or error.reason != "unexpected end of data":
            raise FormatError("not UTF-8", offset=error.start) from error
        text = data[: error.start].decode() + "\ufffd"  # a later piece has the rest of the character
    outcome = outcome_of(text)
    return outcome == "value", from_json(text) if outcome == "value" else None


def _answer(connection: Connection, row: int, piece: Piece) -> str | None:
    """Return the error text of a resent piece at its first arrival, "" if it was taken, or None for a new piece."""
    found = connection.execute(
        'SELECT resent, error FROM written WHERE open = ? AND "offset" = ? AND hash = ?',
        (row, piece.offset, piece.hash),
    ).fetchone()
    if found is None or found[0] == piece.resent:
        return None
    _note(connection, row, piece, found[1])
    return str(found[1])


def _note(connection: Connection, row: int, piece: Piece, error: str) -> None:
    connection.execute(
        'INSERT INTO written (open, "offset", hash, resent, error) VALUES (?, ?, ?, ?, ?) ' + _OR_UPDATE,
        (row, piece.offset, piece.hash, piece.resent, error),
    )
