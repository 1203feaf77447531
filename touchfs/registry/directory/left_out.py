"""What a search for shards left out, by the reason: how many files, and the first of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from touchfs.core.urls import shown

# Files that a message names for each reason, and reasons that it names.
_FILES_NAMED, _REASONS_NAMED = 3, 8
# Characters of a path in a message: the message of a mount goes through a pipe.
_SIZE_MAX = 100


class Reason(NamedTuple):
    """A reason, the number of files that it left out, and the paths of the first ones."""

    reason: str
    files: int
    paths: list[str]

    def __str__(self) -> str:
        more = self.files - len(self.paths)
        named = (path if len(path) <= _SIZE_MAX else f"…{path[-_SIZE_MAX:]}" for path in self.paths)
        return ", ".join(named) + (f" and {more:,} more" if more else "") + f" ({self.reason})"


class LeftOutFiles:
    """Files below `source` that are no shards of its dataset."""

    def __init__(self, source: str = "") -> None:
        self._source = source
        self._counts: dict[str, int] = {}
        self._first: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return sum(self._counts.values())

    def add(self, path: str, reason: str) -> None:
        """Note that the file or directory at a path was left out for a reason."""
        self._counts[reason] = self._counts.get(reason, 0) + 1
        first = self._first.setdefault(reason, [])
        if len(first) < _FILES_NAMED:
            first.append(shown(path.removeprefix(os.path.join(self._source, ""))))

    def reasons(self) -> Iterator[Reason]:
        return (Reason(reason, count, self._first[reason]) for reason, count in self._counts.items())

    def __str__(self) -> str:
        named = [str(each) for each in self.reasons()][:_REASONS_NAMED]
        more = len(self._counts) - len(named)
        files = "1 file" if len(self) == 1 else f"{len(self):,} files"
        return f"{files} left out: " + "; ".join(named) + (f"; and for {more:,} more reasons" if more else "")
