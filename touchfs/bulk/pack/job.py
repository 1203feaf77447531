"""Packing: a JSONL whose lines become samples of shards, several shards at a time, resumed where it was interrupted.

Shard n holds lines `[n * samples_per_shard, (n + 1) * samples_per_shard)`. An empty line takes a place in its shard but
is no sample. A sample that cannot be made ends the run, or is skipped on request and then told in `skipped.jsonl`.
Shards appear whole, and what stands for all of them last: until then, the same call again makes what is missing
(`write/unfinished.py`). What a line becomes, and in what kind of shard, says a `PackTarget`.

Shards are independent, so each is a task for an executor. It is told where its lines begin, not the lines: nowhere is
more than one sample in memory.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from touchfs import jobs
from touchfs.bulk import unfinished
from touchfs.bulk.pack.lines import LineRange, Lines, split
from touchfs.errors import ChangedError, FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.limits import Limits, too_long
from touchfs.posix.atomic import atomic_file
from touchfs.progress import Progress, advance

T = TypeVar("T")

# Adds the line of a number, from 1 on. False: there is no sample in it.
Add = Callable[[int, str], bool]


class PackTarget(Protocol):
    """A kind of shards, and what lines become in them. All its paths are absolute: a worker may run elsewhere."""

    def mark(self, ordinal: int) -> str:
        """The name of what appears last of a shard."""
        ...

    def count(self, mark: Path) -> int:
        """The samples of a shard that is there."""
        ...

    def open(self, output: Path, ordinal: int) -> AbstractContextManager[Add]:
        """A new shard."""
        ...

    def publish(self, output: Path, shards: int) -> None:
        """Write what stands for all, if there is anything that does."""
        ...


@dataclass(frozen=True, slots=True)
class PackReport:
    shards: int
    samples: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Work:
    """What workers share."""

    lines: Lines
    output: Path
    skip_bad: bool


@dataclass(frozen=True, slots=True)
class _ShardCounts:
    lines: int
    samples: int


class Survey:
    """For those who must know of all lines before the first shard."""

    def __init__(self, work: Work, parts: list[LineRange], executor: Executor | None) -> None:
        self._work, self._parts, self._executor = work, parts, executor

    def run(self, function: Callable[[str], T], combine: Callable[[Iterable[T]], T]) -> Iterator[T]:
        """The function's results for the lines of each part, joined there. Lines that are bad are skipped or raised."""
        return jobs.run(partial(_survey, self._work, function, combine), self._parts, self._executor)


def pack(
    jsonl: str | os.PathLike[str],
    output: str,
    samples_per_shard: int,
    kind: Callable[[Survey], PackTarget],
    asked: Mapping[str, Any],
    skip_bad: bool,
    limits: Limits,
    executor: Executor | None,
    progress: Progress | None,
) -> PackReport:
    """Make all shards that are not there yet. `asked` is what they depend on: going on needs the same. Limits may be
    others then, as whoever has met one raises it.
    """
    here = os.getcwd()
    lines, parts = split(os.path.abspath(jsonl), samples_per_shard, limits.json)
    work = Work(lines, Path(here, output), skip_bad)
    told = {"jsonl": lines.path, "directory": here, "output": output, **asked, "sha256": lines.sha256}
    try:
        with unfinished.open_plan(work.output, told):
            return _pack(work, kind(Survey(work, parts, executor)), parts, executor, progress or (lambda *told: None))
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=output) from error


def places(jsonl: str | os.PathLike[str]) -> tuple[str, ...]:
    """What paths in a JSONL are relative to."""
    return os.getcwd(), os.path.dirname(os.path.abspath(jsonl))


def _pack(
    work: Work, kind: PackTarget, parts: list[LineRange], executor: Executor | None, progress: Progress
) -> PackReport:
    total = sum(part.count for part in parts)
    packed: list[_ShardCounts] = []
    missing: list[tuple[tuple[int, LineRange], int]] = []
    for ordinal, part in enumerate(parts):
        mark = work.output / kind.mark(ordinal)
        if not mark.exists():
            missing.append(((ordinal, part), part.count))
        elif not work.skip_bad and _skipped_path(work, ordinal).exists():
            told = "was begun with --skip-bad: go on with it, or remove it and pack again"
            raise UsageError(told, path=str(work.output))
        else:
            packed.append(_ShardCounts(part.count, kind.count(mark)))
    before = sum(shard.lines for shard in packed)

    def heard(done: int, _: int) -> None:
        progress(before + done, total)

    for _ in jobs.run_sized(partial(_pack_part, work, kind), missing, executor, packed.append, heard):
        pass
    _publish_skipped(work, len(parts))
    kind.publish(work.output, len(parts))
    unfinished.remove_plan(work.output)
    return PackReport(len(packed), sum(shard.samples for shard in packed), _count(work.output / "skipped.jsonl"))


def _count(path: Path) -> int:
    """Lines of a file that there may be."""
    try:
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def _skipped_path(work: Work, ordinal: int) -> Path:
    return unfinished.skipped_path(work.output, f"{ordinal:09d}")


def _pack_part(work: Work, kind: PackTarget, task: tuple[int, LineRange]) -> _ShardCounts:
    ordinal, part = task
    path = _skipped_path(work, ordinal)
    with (
        unfinished.join_plan(work.output),
        kind.open(work.output, ordinal) as add,
        ExitStack() as stack,  # left first: a shard that is there has its list
    ):
        path.unlink(missing_ok=True)  # of a run that was killed before the shard appeared
        file: BinaryIO | None = None

        def skip(line: bytes) -> None:
            nonlocal file
            file = file or stack.enter_context(atomic_file(path))
            file.write(line)

        samples = sum(_each(work, part, add, skip))
    return _ShardCounts(part.count, samples)


def _survey(work: Work, function: Callable[[str], T], combine: Callable[[Iterable[T]], T], part: LineRange) -> T:
    return combine(_each(work, part, lambda number, line: function(line), lambda line: None))


def _each(work: Work, part: LineRange, function: Callable[[int, str], T], skip: Callable[[bytes], None]) -> Iterator[T]:
    """The function's result for each line that has anything. Those that are bad are skipped, if that is wanted."""
    for number, line in work.lines.read(part):
        advance(1)
        if line == "":
            continue
        try:
            if line is None:
                raise FormatError(too_long("the line", work.lines.limit))
            result = function(number, line)
        except (FormatError, NotFoundError, SourceError, ChangedError) as error:
            if not work.skip_bad:
                raise _at_line(work, number, error) from error
            told = json.dumps({"line": number, "reason": str(error), "text": line}, ensure_ascii=False)
            # What is not UTF-8 is a lone surrogate here, and Python's backslash form of it is JSON's.
            skip(told.encode("utf-8", "backslashreplace") + b"\n")
        else:
            yield result


def _at_line(work: Work, number: int, error: TouchfsError) -> TouchfsError:
    remedy = "mend it and pack again, or skip it with --skip-bad"
    return type(error)(f"line {number}: {error}; {remedy}", path=work.lines.path)


def _publish_skipped(work: Work, shards: int) -> None:
    lists = [path for ordinal in range(shards) if (path := _skipped_path(work, ordinal)).exists()]
    if lists and not (work.output / "skipped.jsonl").exists():  # else a run was killed that removed some of the lists
        with atomic_file(work.output / "skipped.jsonl") as file:
            for path in lists:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, file)
