"""The names of the iterators that a mount has seen, used while the state store is unavailable.

With them a user can still reach the file `error` of an iterator, which says what is wrong with the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from touchfs.posix.memory.shared_log import SharedLog

# Lines of some dozen bytes. Names beyond that are not recorded.
_LINES_MAX = 10_000


class KnownIterators:
    """Shared by the processes of a mount. A line is the id of an iterator, 0 for one that was removed, and its name."""

    def __init__(self) -> None:
        self._log = SharedLog("touchfs-iterators")
        self._ids: dict[bytes, int] = {}
        self._seen = 0

    def named(self, name: bytes | None) -> list[tuple[bytes, int]]:
        """`(name, id)` of all iterators, or of the one called `name`."""
        ids = self._updated()
        return [(each, iterator) for each, iterator in ids.items() if iterator and name in (None, each)]

    def add(self, named: Iterable[tuple[bytes, int]]) -> None:
        """Record iterators, given as `(name, id)`."""
        for name, iterator in named:
            if self._updated().get(name) != iterator:
                self._log.append(partial(_unless_full, f"{iterator} {name.decode()}"))

    def remove(self, name: bytes) -> None:
        if self._updated().get(name):
            self._log.append(lambda lines: f"0 {name.decode()}")

    def _updated(self) -> dict[bytes, int]:
        lines = self._log.lines()
        for line in lines[self._seen :]:
            iterator, _, name = line.partition(" ")
            self._ids[name.encode()] = int(iterator)
        self._seen = len(lines)
        return self._ids


def _unless_full(line: str, lines: list[str]) -> str | None:
    return line if len(lines) < _LINES_MAX else None
