"""The registry of iterators in a store, by name and by id. Ids are never reused."""

from __future__ import annotations

import time

from touchfs.core.errors import ExistsError, FullError, NotFoundError, UsageError
from touchfs.iterators.spec import unwritten
from touchfs.store.iterator_store import Connection, IteratorStore

# The kernel may repeat a request to make or remove a directory within this time.
REPEATED_SECONDS = 60.0
# Ids are part of inode numbers.
IDS_MAX = (1 << 20) - 1
NAME_MAX = 255

_REMOVED = (
    "INSERT INTO removed_iterator VALUES (?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET removed = excluded.removed, remover = excluded.remover"
)


class Registry:
    """The names and ids of the iterators in a store."""

    def __init__(self, store: IteratorStore) -> None:
        self._store = store

    def create(self, name: str, maker: str = "") -> int:
        """Create an iterator over all samples, in order, and return its id.

        Raises ExistsError if the name is taken, unless the same `maker` created it within the last minute: then the
        request is a repeated one, and the existing id is returned. Raises UsageError for a bad name, FullError.
        """
        key = _checked(name)

        def act(connection: Connection) -> int:
            found = connection.execute("SELECT id, made, maker FROM iterator WHERE name = ?", (key,)).fetchone()
            if found is not None:
                if maker and found[2] == maker and abs(time.time() - found[1]) < REPEATED_SECONDS:
                    return int(found[0])
                raise ExistsError(f"there is an iterator {name!r} already")
            (iterator,) = connection.execute(
                "INSERT INTO iterator (name, spec, made, maker) VALUES (?, ?, ?, ?) RETURNING id",
                (key, unwritten(), time.time(), maker),
            ).fetchone()
            connection.execute("DELETE FROM removed_iterator WHERE name = ?", (key,))
            if iterator > IDS_MAX:
                raise FullError(f"{IDS_MAX} iterators were made: delete the state store", path=self._store.path)
            return int(iterator)

        return self._store.run(act)

    def remove(self, name: str, remover: str = "") -> None:
        """Remove an iterator. Raises NotFoundError, unless the same `remover` removed it within the last minute."""
        key, now = _checked(name), time.time()

        def act(connection: Connection) -> None:
            if connection.execute("DELETE FROM iterator WHERE name = ?", (key,)).rowcount:
                connection.execute("DELETE FROM removed_iterator WHERE removed < ?", (now - REPEATED_SECONDS,))
                connection.execute(_REMOVED, (key, now, remover))
                return
            again = connection.execute(
                "SELECT 1 FROM removed_iterator WHERE name = ? AND remover = ? AND removed > ?",
                (key, remover, now - REPEATED_SECONDS),
            ).fetchone()
            if not remover or again is None:
                raise NotFoundError(f"there is no iterator {name!r}")

        self._store.run(act)

    def find(self, name: str) -> int | None:
        """Return the id of an iterator, or None if there is none of that name."""
        named = self.named(name.encode(errors="surrogateescape"))
        return named[0][1] if named else None

    def name_of(self, iterator: int) -> str | None:
        """Return the name of an iterator, or None if it was removed."""
        with self._store.transaction(write=False) as connection:
            found = connection.execute("SELECT name FROM iterator WHERE id = ?", (iterator,)).fetchone()
        return str(found[0], "utf-8") if found is not None and _is_ours(found[0], iterator) else None

    def named(self, name: bytes | None = None) -> list[tuple[bytes, int]]:
        """Return (name, id) of all iterators in the order of their creation, or only of the one with this name.

        Those whose names or ids we would not give are left out: others may write to a database.
        """
        where, values = ("", ()) if name is None else (" WHERE name = ?", (name,))
        with self._store.transaction(write=False) as connection:
            found = connection.execute(f"SELECT name, id FROM iterator{where} ORDER BY id", values).fetchall()
        return [(name, iterator) for name, iterator in found if _is_ours(name, iterator)]

    def names(self) -> list[str]:
        """Return the names of all iterators in the order of their creation."""
        return [name.decode() for name, _ in self.named()]


def _is_ours(name: object, iterator: int) -> bool:
    try:
        return isinstance(name, bytes) and _checked(name.decode()) == name and 0 < iterator <= IDS_MAX
    except (UnicodeDecodeError, UsageError):
        return False


def _checked(name: str) -> bytes:
    try:
        key = name.encode()
    except UnicodeEncodeError:
        raise UsageError("the name of an iterator is UTF-8") from None
    if not name.isprintable() or not 0 < len(key) <= NAME_MAX or "/" in name or name in (".", "..", "README"):
        raise UsageError(f"an iterator cannot be called {name!r:.80}: choose a name of letters and digits")
    return key
