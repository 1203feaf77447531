"""The progress of an unfinished conversion, so that the same call resumes it.

    OUT/.touchfs-pack-000000003.jsonl   what was skipped for shard 3, and in the last line, where the next shard begins

A task makes a shard and this record in a directory of its own, under the names that they will have. Where a shard
begins depends on what was skipped in those before it, so shards are put into the output in order, and the record of
each after it. A shard without a record is from a run that was killed in between, and is made again. The rest is as in
an unfinished pack (`bulk/unfinished.py`).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from touchfs.bulk.skipped import publish_skipped
from touchfs.bulk.unfinished import join_plan, skipped_path
from touchfs.posix.atomic import TEMPORARY_PREFIX, move_into


class ResumePoint(NamedTuple):
    """The next sample: the position of its shard in the dataset, and its ordinal there.

    `samples` were written before.
    """

    shard: int = 0
    ordinal: int = 0
    samples: int = 0


class StagedShard(NamedTuple):
    """A complete shard and its record in a directory. `end` is where the next shard begins, `skipped` a number."""

    directory: Path
    begin: ResumePoint
    end: ResumePoint
    skipped: int

    @property
    def samples(self) -> int:
        return self.end.samples - self.begin.samples

    def discard(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def staging(output: Path) -> Iterator[Path]:
    """A new directory in the output for one shard. An exception deletes it; so does the next run, after a kill."""
    with join_plan(output):
        directory = output / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        directory.mkdir()
        try:
            yield directory
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise


def record_path(directory: Path, number: int) -> Path:
    """The path of a shard's record: lines on what was skipped, then the position where the next shard begins."""
    return skipped_path(directory, f"{number:09d}")


class ResumeState:
    """The shards in the output. `mark` returns, for a shard's number, the name of its file that appears last."""

    def __init__(self, output: str, mark: Callable[[int], str]) -> None:
        self._output = Path(output)
        self._mark = mark
        self.position = ResumePoint()
        self.records = self.skipped = 0
        while (self._output / mark(self.records)).exists() and self._read():
            self.records += 1
        self.shards = self.records
        for path in _existing(self._output, mark, self.records):
            if path.is_dir():  # a file is replaced when it is written again
                shutil.rmtree(path)

    def _read(self) -> bool:
        try:
            with open(record_path(self._output, self.records), "rb") as file:
                *lines, last = file
            self.position = ResumePoint(*json.loads(last))
        except (OSError, ValueError, TypeError):
            return False
        self.skipped += len(lines)
        return True

    def publish(self, staged: StagedShard) -> None:
        """Put the next shard into the output, its record last. An empty one is left out, unless it is the only one."""
        mark, record = self._mark(self.records), record_path(staged.directory, self.records)
        if staged.samples or not self.records:
            # The file that others are read by comes after them, and its index after it: `mark` is one of these two.
            names = sorted(set(os.listdir(staged.directory)) - {record.name})
            for name in sorted(names, key=mark.startswith):
                move_into(staged.directory / name, self._output)
            self.shards += bool(names)  # Lhotse has no empty Shar, so there may be no files
        move_into(record, self._output)
        self.records += 1
        self.position = staged.end
        self.skipped += staged.skipped

    def publish_skipped(self) -> None:
        """Write `skipped.jsonl` if anything was skipped."""
        if self.skipped:
            publish_skipped(self._output, self._skipped_lines())

    def _skipped_lines(self) -> Iterator[bytes]:
        for number in range(self.records):
            with open(record_path(self._output, number), "rb") as part:
                *lines, _ = part
                yield from lines


def _existing(output: Path, mark: Callable[[int], str], number: int) -> Iterator[Path]:
    while os.path.lexists(path := output / mark(number)):
        yield path
        number += 1
