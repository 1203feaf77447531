"""How far an unfinished conversion has come, so that the same call goes on with it.

    OUT/.touchfs-pack-000000003.jsonl   what was skipped for shard 3, and, in the last line, where the next one begins

That is written when the shard is there. So a shard without it, which a run has left that was killed in between, is made
again. The rest is as in an unfinished pack (`write/unfinished.py`).
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


class Position(NamedTuple):
    """The next sample: the position of its shard in the source, and its ordinal there. `samples` are written."""

    shard: int = 0
    ordinal: int = 0
    samples: int = 0


class ResumeState:
    """The shards that are there. `mark` is the name of what appears last of a shard, by its number."""

    def __init__(self, output: str, mark: Callable[[int], str]) -> None:
        self._output = Path(output)
        self._stack = ExitStack()
        self._file: BinaryIO | None = None
        self.position = Position()
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
        """For the shard that comes next."""
        self._open().write(line)
        self.skipped += 1

    def add(self, position: Position) -> None:
        """One more shard is there, behind which the next begins."""
        self._open().write(json.dumps(position).encode() + b"\n")
        self._file = None
        self._stack.close()
        self.position = position
        self.shards += 1

    def publish(self, position: Position) -> None:
        """All is done: the last shard, which may lack, too. Everything that was skipped is in `skipped.jsonl`."""
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
            self.position = Position(*json.loads(last))
        except (OSError, ValueError, TypeError):
            return False
        self.skipped += len(lines)
        return True


def _existing(output: Path, mark: Callable[[int], str], number: int) -> Iterator[Path]:
    while os.path.lexists(path := output / mark(number)):
        yield path
        number += 1
