"""The journal of a verification: the verdict of each good shard, so that one that was interrupted goes on where it was.

It is a file of JSON lines beside the index. A line that was cut off by a crash is not used, and neither is one older
than `KEPT_SECONDS`. A shard with problems is not in it, as somebody may repair it without a trace. A verification that
has come to its end removes its journal: the next one reads everything again.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict

from touchfs.core.errors import SourceError, TouchfsError, map_os_errors
from touchfs.core.names import hex_digest
from touchfs.dataset import Dataset
from touchfs.indexing.place import make_place
from touchfs.posix.trust import open_for_update, open_trusted
from touchfs.verify.shard import ShardVerdict

_SUFFIX = ".verifying.jsonl"
_LINE_MAX = 1 << 24
# A run that is continued the next day goes on. What was read longer ago is read again.
KEPT_SECONDS = 86_400


def journal_stem(source: str) -> str:
    """The name of the journal of a dataset, without its suffix."""
    return hex_digest(os.fsencode(source))


class Journal:
    """The journal of verifying a dataset whose index is in the directory `place`."""

    def __init__(self, place: str, dataset: Dataset) -> None:
        self.path = os.path.join(place, journal_stem(dataset.source) + _SUFFIX)
        self._place = place

    def verdicts(self) -> dict[str, ShardVerdict]:
        """The verdicts so far, by their subject: a shard that has changed, or its index, is not among them."""
        found: dict[str, ShardVerdict] = {}
        with suppress(OSError, TouchfsError), open(open_trusted(self.path), "rb") as file:
            while line := file.readline(_LINE_MAX):
                with suppress(ValueError, TypeError, KeyError, RecursionError):
                    members = json.loads(line)
                    age = time.time() - members.pop("time")
                    verdict = ShardVerdict(**members)
                    if 0 <= age < KEPT_SECONDS and not verdict.problems and line.endswith(b"\n"):
                        found[str(verdict.subject)] = verdict
        return found

    def add(self, verdict: ShardVerdict) -> None:
        """Add a verdict; it is on the disk when this returns. Raises SourceError."""
        if verdict.problems:
            return
        make_place(self._place)
        with map_os_errors(self.path, "the journal cannot be written"):
            descriptor = open_for_update(self.path, os.O_RDWR | os.O_APPEND)
            try:
                size = os.fstat(descriptor).st_size
                cut_off = size and os.pread(descriptor, 1, size - 1) != b"\n"
                line = b"\n" * bool(cut_off) + json.dumps(asdict(verdict) | {"time": time.time()}).encode() + b"\n"
                if os.write(descriptor, line) != len(line):
                    raise SourceError("the journal cannot be written: no space left", path=self.path)
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self) -> None:
        with map_os_errors(self.path), suppress(FileNotFoundError):  # another verification may have removed it
            os.unlink(self.path)
