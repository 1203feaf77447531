"""The interface of streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from touchfs.core.errors import FormatError
from touchfs.core.names import hex_digest
from touchfs.dataset.sample import Sample

VIEW = "shards"

# The position after a sample, as integers that a state can hold; the empty one is before the first sample.
Cursor: TypeAlias = Sequence[int]
# The cursor after a sample, and the function that makes the sample.
StreamItem: TypeAlias = tuple[list[int], Callable[[], Sample]]


class Stream(Protocol):
    """The samples of one shard."""

    @property
    def name(self) -> str:
        """The name of the shard."""
        ...

    def sizes(self) -> list[tuple[str, int | None]]:
        """Return the (name, size in bytes) of each file; the size is None if it is unknown."""
        ...

    def samples(self, cursor: Cursor) -> Iterator[StreamItem]:
        """Yield the samples after a cursor: for each the cursor after it, and the function that makes it."""
        ...


def fingerprint_of(streams: Sequence[Stream]) -> str:
    """Return a hash of the names and sizes of all files, independent of their directory."""
    files = [(stream.name, stream.sizes()) for stream in streams]
    return hex_digest(json.dumps(files).encode())


def cursor_numbers(cursor: Cursor, count: int) -> Cursor:
    """Return a cursor as `count` integers; the empty one is all zeros. Raises FormatError for another length."""
    if cursor and len(cursor) != count:
        raise FormatError(f"the place in a shard has {len(cursor)} numbers, not {count}: the state is damaged")
    return cursor or [0] * count
