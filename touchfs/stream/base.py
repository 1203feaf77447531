"""What a stream is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from touchfs.dataset.shown_sample import ShownSample
from touchfs.errors import FormatError

VIEW = "shards"

# Behind a sample; the empty one is before the first. Integers, which a state keeps.
Cursor: TypeAlias = Sequence[int]
StreamItem: TypeAlias = tuple[list[int], Callable[[], ShownSample]]


class Stream(Protocol):
    """The samples of one shard."""

    @property
    def name(self) -> str:
        """Of the shard."""
        ...

    def sizes(self) -> list[tuple[str, int | None]]:
        """Of its files, by name; None where it is not known."""
        ...

    def samples(self, place: Cursor) -> Iterator[StreamItem]:
        """What makes each one behind a place, and the place behind it."""
        ...


def fingerprint_of(streams: Sequence[Stream]) -> str:
    """As that of an indexed dataset: of names and sizes, wherever they lie."""
    told = [(stream.name, stream.sizes()) for stream in streams]
    return hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest()


def cursor_numbers(place: Cursor, count: int) -> Cursor:
    """A place as so many integers."""
    if place and len(place) != count:
        raise FormatError(f"a place of {len(place)} numbers, and here it has {count}: the state is damaged")
    return place or [0] * count
