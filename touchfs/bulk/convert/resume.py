"""The progress of an unfinished conversion, so that the same call resumes it.

    OUT/.touchfs-pack-000000003.jsonl   what was skipped for shard 3, and in the last line, where the next shard begins

This file is written when the shard exists. A shard without it is from a run that was killed in between, and is made
again. The rest is as in an unfinished pack (`bulk/unfinished.py`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from touchfs.bulk.unfinished import skipped_path
from touchfs.posix.atomic import atomic_file


class ResumePoint(NamedTuple):
    """The next sample: the position of its shard in the source, and its ordinal there.

    `samples` were written before.
    """

    shard: int = 0
    ordinal: int = 0
    samples: int = 0


class ResumeState:
    """The shards written so far. `mark` returns, for a shard's number, the name of its file that appears last."""

    def __init__(self, output: str, mark: Callable[[int], str]) -> None:
        self._output = Path(output)
        self._stack = ExitStack()
        self._file: BinaryIO | None = None
        self.position = ResumePoint()
        self.shards = self.skipped = 0
        while (self._output / mark(self.shards)).exists() and self._read():
            self.shards += 1
        for path in _existing(self._output, mark, self.shards):
            if path.is_dir():  # a file is replaced when it is written again
                shutil.rmtree(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def skip(self, line: bytes) -> None:
        """Record a skipped sample for the next shard."""
        self._open().write(line)
        self.skipped += 1

    def add(self, position: ResumePoint) -> None:
        """Record a complete shard. The next one begins at `position`."""
        self._open().write(json.dumps(position).encode() + b"\n")
        self._file = None
        self._stack.close()
        self.position = position
        self.shards += 1

    def publish(self, position: ResumePoint) -> None:
        """Finish: record the last shard, which may be absent, and write `skipped.jsonl` if anything was skipped."""
        self.add(position)
        if self.skipped:
            with atomic_file(self._output / "skipped.jsonl") as file:
                for number in range(self.shards):
                    with open(self._path(number), "rb") as part:
                        *lines, _ = part
                        file.writelines(lines)

    def _open(self) -> BinaryIO:
        if self._file is None:
            self._file = self._stack.enter_context(atomic_file(self._path(self.shards)))
        return self._file

    def _path(self, number: int) -> Path:
        return skipped_path(self._output, f"{number:09d}")

    def _read(self) -> bool:
        try:
            with open(self._path(self.shards), "rb") as file:
                *lines, last = file
            self.position = ResumePoint(*json.loads(last))
        except (OSError, ValueError, TypeError):
            return False
        self.skipped += len(lines)
        return True


def _existing(output: Path, mark: Callable[[int], str], number: int) -> Iterator[Path]:
    while os.path.lexists(path := output / mark(number)):
        yield path
        number += 1
