"""Files that a process has open: the last `FILES_KEPT` of a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from touchfs.limits import Limits
from touchfs.posix.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from touchfs.source.store import StoredFile

FILES_KEPT = 64

T = TypeVar("T")


class OpenTableFiles(Generic[T]):
    """The files that were opened last. Threads that ask at once for a file wait for one opening."""

    def __init__(self, open_file: Callable[[StoredFile, Limits], T]) -> None:
        self._open = open_file
        self._kept: BoundedCache[tuple[str, Limits], T] = BoundedCache(FILES_KEPT)

    def find(self, source: StoredFile, limits: Limits) -> T | None:
        """The file in a source if this process has it open. Never waits."""
        identity = source.identity
        return None if identity is None else self._kept.find((identity, limits))

    def get(self, source: StoredFile, limits: Limits) -> T:
        """The file in a source. Raises what opening it raises."""
        if not source.is_verified:
            source.open()
        identity = source.identity
        if identity is None:
            return self._open(source, limits)
        found = self._kept.find(key := (identity, limits))
        return self._kept.get(key, lambda: self._open(source, limits)) if found is None else found
