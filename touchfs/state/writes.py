"""Values written to control files: JSON, in as many pieces as the writer likes.

The bytes written to one open are collected until they are one value; the write that completes it applies it, in the
same transaction. What no value begins with is refused, and forgotten. Pieces count in the order they come, whatever
their offsets: those of `>>` are no ones of ours. A request may be sent twice, so a piece that an open has had already,
at the same offset, is not taken again; its answer is the first one's.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any

from touchfs.errors import FormatError, NotFoundError, StateError, TouchfsError, UsageError
from touchfs.state.json_prefix import outcome_of
from touchfs.state.store import StateStore
from touchfs.token import from_json

# Far more than any spec or state needs.
VALUE_MAX = 1 << 20


def write(store: StateStore, open_id: int, offset: int, data: bytes, apply: Callable[[str, Any], None]) -> None:
    """Raises UsageError for what was refused. `apply` is called with the open's file and the value."""
    try:
        with store.transaction() as connection:
            if _had(connection, open_id, offset, data):
                return
            found = connection.execute("SELECT file, pending FROM open WHERE id = ?", (open_id,)).fetchone()
            if found is None:
                return  # released already: nobody waits for this write
            file, pending = found[0], bytes(found[1]) + data
            whole, value = _parse(pending)
            if whole:
                apply(file, value)
                pending = b""
            connection.execute("UPDATE open SET pending = ? WHERE id = ?", (pending, open_id))
            _note(connection, open_id, offset, data, None)
    except (StateError, NotFoundError):
        raise
    except TouchfsError as error:
        with store.transaction() as connection:
            _had(connection, open_id, offset, data)
            connection.execute("UPDATE open SET pending = x'' WHERE id = ?", (open_id,))
            _note(connection, open_id, offset, data, str(error))
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from error


def file_of(store: StateStore, open_id: int) -> str:
    """The file of an open, empty if it was released."""
    with store.transaction() as connection:
        found = connection.execute("SELECT file FROM open WHERE id = ?", (open_id,)).fetchone()
    return "" if found is None else str(found[0])


def release(store: StateStore, open_id: int, *, wait: bool = True) -> str:
    """Release an open. Returns its file if a value was begun and not completed, which is dropped; else nothing."""
    with store.transaction(wait=wait) as connection:
        found = connection.execute("SELECT file, pending FROM open WHERE id = ?", (open_id,)).fetchone()
        connection.execute("DELETE FROM open WHERE id = ?", (open_id,))
    return found[0] if found is not None and found[1].strip() else ""


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


def _had(connection: sqlite3.Connection, open_id: int, offset: int, data: bytes) -> bool:
    found = connection.execute(
        "SELECT error FROM written WHERE open = ? AND offset = ? AND hash = ?", (open_id, offset, _hash(data))
    ).fetchone()
    if found is not None and found[0] is not None:
        raise UsageError(found[0])  # as it was refused before
    return found is not None


def _note(connection: sqlite3.Connection, open_id: int, offset: int, data: bytes, error: str | None) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO written (open, offset, hash, error) SELECT id, ?, ?, ? FROM open WHERE id = ?",
        (offset, _hash(data), error, open_id),
    )


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
