"""An external merge sort: records are sorted in memory as far as they fit, and the sorted runs are merged from disk.

A run is an unnamed temporary file, so nothing is left of it, however the process ends.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterator
from typing import IO

MEMORY = 1 << 26
# Open at a time. Each has a descriptor and a buffer of 8 KiB.
RUNS_MAX = 256


class Sorter:
    """Sorts records by their keys: bytes without TAB and line ends. Records have no line ends.

    At most about `memory` bytes of them are in memory. Runs are written to `directory`.
    """

    def __init__(self, directory: str, memory: int = MEMORY) -> None:
        self._directory = directory
        self._memory = memory
        self._lines: list[bytes] = []
        self._size = 0
        self._runs: list[IO[bytes]] = []

    def add(self, key: bytes, record: bytes) -> None:
        """Add a record. Raises OSError if a run cannot be written."""
        line = b"%b\t%b\n" % (key, record)
        self._lines.append(line)
        self._size += len(line)
        if self._size > self._memory:
            self._lines.sort(key=_key)
            self._write(iter(self._lines))
            self._lines, self._size = [], 0
            if len(self._runs) == RUNS_MAX:
                runs, self._runs = self._runs, []
                self._write(heapq.merge(*runs, key=_key))
                _close(runs)

    def records(self) -> Iterator[bytes]:
        """Yield all records in order, those of one key as they were added."""
        self._lines.sort(key=_key)
        for line in heapq.merge(*self._runs, self._lines, key=_key):
            yield line.partition(b"\t")[2][:-1]

    def close(self) -> None:
        _close(self._runs)

    def _write(self, lines: Iterator[bytes]) -> None:
        run = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115  until it is merged
        for line in lines:
            run.write(line)
        run.seek(0)
        self._runs.append(run)


def _key(line: bytes) -> bytes:
    return line.partition(b"\t")[0]


def _close(runs: list[IO[bytes]]) -> None:
    for run in runs:
        run.close()
