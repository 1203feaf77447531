"""Packing: the lines of a JSONL become samples of shards, several shards at a time, and an interrupted run is resumed.

Shard n contains lines `[n * samples_per_shard, (n + 1) * samples_per_shard)`. An empty line counts as a line of its
shard but is no sample. A sample that cannot be made ends the run, or on request is skipped and reported in
`skipped.jsonl`. Shards appear when they are complete, and the list of all shards last: until then, the same call makes
the missing ones (`bulk/unfinished.py`). A `PackTarget` decides what becomes of a line, and the format of the shards.

Shards are independent, so each is a task for an executor. A task contains the offset of its lines, not the lines: no
process has more than one sample in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from touchfs.bulk import unfinished
from touchfs.bulk.data_list import check_output
from touchfs.bulk.pack.lines import LineRange, Lines, split
from touchfs.bulk.skipped import SKIPPED, publish_skipped, skipped_line
from touchfs.core import jobs
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.core.location import Location
from touchfs.core.progress import Progress, advance
from touchfs.limits import Limits, too_long
from touchfs.posix.atomic import atomic_file
from touchfs.source.data import DATA
from touchfs.source.store import FileType

T = TypeVar("T")

# Adds a line with its number, from 1 on. Returns False if the line makes no sample.
Add = Callable[[int, str], bool]


class PackTarget(Protocol):
    """An output format with its settings. All its paths are absolute: a worker may have another current directory."""

    def mark(self, ordinal: int) -> str:
        """The name of the file or directory of a shard that appears last."""
        ...

    def count(self, mark: Path) -> int:
        """The number of samples of an existing shard."""
        ...

    def open(self, output: Path, ordinal: int) -> AbstractContextManager[Add]:
        """Open a new shard. It is complete when the block ends without an exception."""
        ...

    def publish(self, output: Path, shards: int) -> None:
        """Write the list of all shards, if the format has one."""
        ...


@dataclass(frozen=True, slots=True)
class PackReport:
    """The numbers of shards and samples that were written, and of lines that were skipped."""

    shards: int
    samples: int
    skipped: int


@dataclass(frozen=True, slots=True)
class PackSettings:
    """The settings that all workers share."""

    lines: Lines
    output: Path
    skip_bad: bool


@dataclass(frozen=True, slots=True)
class _ShardCounts:
    lines: int
    samples: int


class ListSurvey:
    """Runs a function over all lines, for targets that need facts about all of them before the first shard."""

    def __init__(self, work: PackSettings, ranges: list[LineRange], executor: Executor | None) -> None:
        self._work, self._ranges, self._executor = work, ranges, executor

    def run(self, function: Callable[[str], T], combine: Callable[[Iterable[T]], T]) -> Iterator[T]:
        """The results of `function` for the lines of each range, combined in its worker.

        Bad lines are skipped or raised.
        """
        return jobs.run(partial(_survey, self._work, function, combine), self._ranges, self._executor)


def pack(
    jsonl: str | os.PathLike[str],
    output: str,
    samples_per_shard: int,
    make_target: Callable[[ListSurvey], PackTarget],
    settings: Mapping[str, Any],
    skip_bad: bool,
    limits: Limits,
    executor: Executor | None,
    progress: Progress | None,
) -> PackReport:
    """Make all missing shards. `settings` determine the shards, and must be equal to resume.

    `limits` may differ on resuming, because a user who meets one raises it.
    """
    check_output(output)
    location = Location.parse(jsonl).absolute
    path, here = location.path, os.getcwd()
    if DATA.stat(path).type is FileType.DIRECTORY if location.is_url else os.path.isdir(path):
        targets = "`touchfs pack arrow`, `parquet` and `lance` take folders"
        problem = f"is a directory: name a list of its files, DATA.jsonl; {targets}"
        raise UsageError(problem, path=os.fspath(jsonl))
    lines, ranges = split(path, samples_per_shard, limits.json)
    work = PackSettings(lines, Path(here, output), skip_bad)
    plan = {"jsonl": lines.path, "directory": here, "output": output, **settings, "sha256": lines.sha256}
    try:
        with unfinished.open_plan(work.output, plan):
            target = make_target(ListSurvey(work, ranges, executor))
            return _pack(work, target, ranges, executor, progress or (lambda done, total: None))
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=output) from error


def places(jsonl: str | os.PathLike[str]) -> tuple[str, ...]:
    """The directories that paths in a JSONL are relative to, the first one with the file counts. One of another store
    names no files of this machine.
    """
    location = Location.of(jsonl).absolute
    beside = os.path.dirname(location.path)
    return (beside,) if location.is_url else (os.getcwd(), beside)


def _pack(
    work: PackSettings, target: PackTarget, ranges: list[LineRange], executor: Executor | None, progress: Progress
) -> PackReport:
    total = sum(lines.count for lines in ranges)
    packed: list[_ShardCounts] = []
    missing: list[tuple[tuple[int, LineRange], int]] = []
    for ordinal, lines in enumerate(ranges):
        mark = work.output / target.mark(ordinal)
        if not mark.exists():
            missing.append(((ordinal, lines), lines.count))
        elif not work.skip_bad and _skipped_path(work, ordinal).exists():
            problem = "was begun with --skip-bad: go on with it, or remove it and pack again"
            raise UsageError(problem, path=str(work.output))
        else:
            packed.append(_ShardCounts(lines.count, target.count(mark)))
    before = sum(shard.lines for shard in packed)

    def report(done: int, _: int) -> None:
        progress(before + done, total)

    for _ in jobs.run_sized(partial(_pack_shard, work, target), missing, executor, packed.append, report):
        pass
    _publish_skipped(work, len(ranges))
    target.publish(work.output, len(ranges))
    return PackReport(len(packed), sum(shard.samples for shard in packed), _count(work.output / SKIPPED))


def _count(path: Path) -> int:
    try:
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def _skipped_path(work: PackSettings, ordinal: int) -> Path:
    return unfinished.skipped_path(work.output, f"{ordinal:09d}")


def _pack_shard(work: PackSettings, target: PackTarget, task: tuple[int, LineRange]) -> _ShardCounts:
    ordinal, lines = task
    mark, path = work.output / target.mark(ordinal), _skipped_path(work, ordinal)
    if mark.exists():  # a worker of a cluster was lost after it had made the shard, and before it said so
        return _ShardCounts(lines.count, target.count(mark))
    with (
        unfinished.join_plan(work.output),
        target.open(work.output, ordinal) as add,
        ExitStack() as stack,  # exited first: a complete shard has its list of skipped lines
    ):
        path.unlink(missing_ok=True)  # left by a run that was killed before the shard appeared
        file: BinaryIO | None = None

        def skip(line: bytes) -> None:
            nonlocal file
            file = file or stack.enter_context(atomic_file(path))
            file.write(line)

        samples = sum(_each(work, lines, add, skip))
    return _ShardCounts(lines.count, samples)


def _survey(
    work: PackSettings, function: Callable[[str], T], combine: Callable[[Iterable[T]], T], lines: LineRange
) -> T:
    return combine(_each(work, lines, lambda number, line: function(line), lambda line: None))


def _each(
    work: PackSettings, lines: LineRange, function: Callable[[int, str], T], skip: Callable[[bytes], None]
) -> Iterator[T]:
    """The results of `function` for each line that is not empty.

    Bad lines are skipped if that is allowed, else raised.
    """
    for number, line in work.lines.read(lines):
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
            skip(skipped_line({"line": number, "reason": str(error), "text": line}))
        else:
            yield result


def _at_line(work: PackSettings, number: int, error: TouchfsError) -> TouchfsError:
    remedy = "fix it and pack again, or skip it with --skip-bad"
    return type(error)(f"line {number}: {error}; {remedy}", path=work.lines.path)


def _publish_skipped(work: PackSettings, shards: int) -> None:
    lists = [path for ordinal in range(shards) if (path := _skipped_path(work, ordinal)).exists()]
    if lists and not (work.output / SKIPPED).exists():  # else a run was killed while it removed the lists
        publish_skipped(work.output, _lines(lists))


def _lines(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        with open(path, "rb") as part:
            yield from part
