"""Results that a process makes once and keeps in memory: the last ones, up to a number of bytes.

Threads that ask for the same result at once wait for one making. A FormatError is a result, too, and is kept for
`RETRY_SECONDS`: else a directory of the segments of a damaged recording would take as long for each file. Then it is
tried again, as the machine may have been busy.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import inf
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from touchfs.core.errors import FormatError
from touchfs.posix.bounded_cache import BoundedCache

RETRY_SECONDS = 60.0
# Bytes of an entry besides its result: objects, their keys, and the text of an error.
_ENTRY_BYTES = 2000


T = TypeVar("T")


class _KeptResult(NamedTuple, Generic[T]):
    """A result, or the error of making it, and how long it is kept, by time.monotonic."""

    result: T | FormatError
    until: float = inf


class Results(Generic[T]):
    """The last results. `size_of` returns the bytes that one takes in memory."""

    def __init__(self, kept_bytes: int, size_of: Callable[[T], int]) -> None:
        def bytes_of(outcome: _KeptResult[T]) -> int:
            return _ENTRY_BYTES + (0 if isinstance(outcome.result, FormatError) else size_of(outcome.result))

        self._outcomes: BoundedCache[Hashable, _KeptResult[T]] = BoundedCache(kept_bytes, bytes_of)

    def known(self, key: Hashable) -> T | None:
        """The result of a key if this process has it, else None. Never waits for a making."""
        outcome = self._outcomes.find(key)
        return None if outcome is None or isinstance(outcome.result, FormatError) else outcome.result

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of a key, made if it is missing. Raises what `make` raises."""
        outcome = self._outcomes.find(key)
        if outcome is not None and outcome.until < monotonic():
            self._outcomes.pop(key)
        outcome = self._outcomes.get(key, lambda: _outcome(make))
        if isinstance(outcome.result, FormatError):  # another object each time, as its catcher may add a path
            raise type(outcome.result)(outcome.result.message, offset=outcome.result.offset)
        return outcome.result


def _outcome(make: Callable[[], T]) -> _KeptResult[T]:
    """The outcome of a making. Errors that the next one may not have are raised."""
    try:
        return _KeptResult(make())
    except FormatError as error:
        return _KeptResult(type(error)(error.message, offset=error.offset), monotonic() + RETRY_SECONDS)
