"""Conversion: the samples of any shards, in order, become shards of another format, under the same keys.

A sample is a key and files by extension, as in the tree; a target takes that, and refuses what it cannot store
(`bulk/convert/tar.py`, `shar.py`, `touchnet.py`). A sample that is damaged or refused ends the conversion, or on
request is skipped and reported in `skipped.jsonl`, as are unreadable parts of a shard. Shards appear when they are
complete, and the same call resumes after the last of them (`bulk/convert/resume.py`).

A survey predicts where each new shard begins, so each is a task for an executor. A skipped sample moves the shards
behind it: what was made of them ahead is discarded, and made again from there. One sample at a time is in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NamedTuple, Protocol, Self

from touchfs import jobs
from touchfs.bulk import unfinished
from touchfs.bulk.convert.input import Files, InputShard, files_of, release, samples
from touchfs.bulk.convert.names import own_key
from touchfs.bulk.convert.resume import ResumePoint, ResumeState, StagedShard, record_path, staging
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.survey import DatasetSurvey, survey_shard
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.bulk.data_list import check_output
from touchfs.bulk.skipped import skipped_line
from touchfs.errors import FormatError, SourceError, TouchfsError, UsageError
from touchfs.extent import Buffer
from touchfs.posix.atomic import atomic_file
from touchfs.progress import Progress, reached
from touchfs.sample import StoredSample
from touchfs.shard.find import find_shards
from touchfs.shard.options import DEFAULT, FIRST_RULE, Options
from touchfs.source.fingerprint import Fingerprint

# The share of all work that the survey does, for progress.
_SURVEY = 0.1


class Writer(Protocol):
    """Writes one shard. When its `with` block ends without an exception, everything that was added is in place."""

    @property
    def is_full(self) -> bool:
        """True if the next sample belongs to another shard."""
        ...

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        """Add one sample. Raises FormatError, and writes nothing of it, if it cannot be stored."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Target(Protocol):
    """An output format with its settings. A dataclass: its kind and fields identify an unfinished conversion."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def kind(self) -> str:
        """The name of the format in the plan of an unfinished conversion."""
        ...

    @property
    def samples_per_shard(self) -> int | None:
        """The number of samples that fill a shard."""
        ...

    @property
    def bytes_per_shard(self) -> int | None:
        """The size of a tar that fills a shard."""
        ...

    @property
    def needs_extensions(self) -> bool:
        """True if the extensions of all samples must be known before the first shard."""
        ...

    @property
    def copies_files(self) -> bool:
        """True if all files of a sample are stored as they are, and so their segments."""
        ...

    def mark(self, ordinal: int) -> str:
        """The name of the file or directory of a shard that appears last."""
        ...

    def open(self, directory: str, ordinal: int, extensions: Collection[str]) -> Writer:
        """A writer of a shard. `extensions` are those of all samples, if they are needed."""
        ...

    def publish(self, output: str, shards: int) -> None:
        """Write the list of all shards, if the format has one."""
        ...


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """The numbers of shards and samples that were written, and of samples and problems that were skipped."""

    shards: int
    samples: int
    skipped: int


def convert(
    dataset: str,
    output: str,
    target: Target,
    *,
    options: Options = DEFAULT,
    leave_out: Collection[str] = (),
    skip_bad: bool = False,
    executor: Executor | None = None,
    progress: Progress = lambda done, total: None,
) -> ConvertReport:
    """Convert a dataset without the files of the extensions `leave_out`.

    The result does not depend on the executor. `progress` is called with the bytes of the dataset that are done and
    their total. Raises UsageError if the output contains anything but an unfinished conversion with the same settings,
    ChangedError if the dataset changed since that was begun, and the errors of the dataset.
    """
    check_output(output)
    progress = _increasing(progress)
    paths = find_shards(dataset)
    if not os.path.lexists(os.path.join(output, unfinished.PLAN)):
        _make(output)
    inputs = [InputShard(path, files_of(path)) for path in paths]
    settings = _settings(dataset, output, target, options, leave_out, inputs)
    try:
        with unfinished.open_plan(Path(output), settings):
            state = ResumeState(output, target.mark)
            if state.skipped and not skip_bad:
                problem = "was begun with --skip-bad: go on with it, or remove it and convert again"
                raise UsageError(problem, path=output)
            survey = _survey(inputs, target, options, leave_out, executor, progress)
            work = _Conversion(
                target, Path(os.path.abspath(output)), inputs, options, leave_out, survey.extensions, skip_bad
            )
            while state.position.shard < len(inputs):
                _convert(work, survey, state, executor, progress)
            state.publish_skipped()
            target.publish(output, state.shards)
            unfinished.remove_plan(Path(output))
            return ConvertReport(state.shards, state.position.samples, state.skipped)
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=output) from error
    finally:
        release()


def _make(output: str) -> None:
    try:
        os.makedirs(output, exist_ok=True)
        names = sorted(os.listdir(output))
    except OSError as error:
        raise UsageError(f"cannot be the output: {error.strerror}", path=output) from error
    if names:
        raise UsageError(f"already holds {names[0]}: remove it, or choose another output", path=output)


def _settings(
    dataset: str, output: str, target: Target, options: Options, leave_out: Collection[str], inputs: list[InputShard]
) -> dict[str, Any]:
    """Everything that determines the shards, and so must be equal to resume."""
    target_fields = {name.replace("_", "-"): value for name, value in asdict(target).items() if name != "limits"}
    return {
        "kind": f"convert with {target.kind}",
        "source": os.path.abspath(dataset),
        "output": output,
        **target_fields,
        "sample-rate": options.sample_rate,
        "key-rule": options.key_rule,
        # Not in plans from before there were rules.
        **({} if options.segments == FIRST_RULE else {"segments": options.segments}),
        "leave-out": sorted(leave_out),
        "sha256": _digest(inputs),
    }


def _digest(shards: Iterable[InputShard]) -> str:
    """The SHA-256 of the files of all shards, which the plan of an unfinished conversion holds.

    The text that is hashed never changes, or no plan would fit any more: it is what version 0.1 hashed, the `repr` of
    a list of pairs, with the name that the class of fingerprints had then.
    """

    def spelled(name: str, file: Fingerprint) -> str:
        fingerprint = f"FileIdentity(size={file.size}, mtime_ns={file.mtime_ns}, inode={file.inode})"
        return f"({name!r}, {fingerprint})"

    listed = ((path, ", ".join(starmap(spelled, sorted(files.items())))) for path, files in shards)
    text = ", ".join(f"({path!r}, [{files}])" for path, files in listed)
    return hashlib.sha256(f"[{text}]".encode(errors="surrogateescape")).hexdigest()


def _survey(
    inputs: list[InputShard],
    target: Target,
    options: Options,
    leave_out: Collection[str],
    executor: Executor | None,
    progress: Progress,
) -> DatasetSurvey:
    visit = target.needs_extensions or target.bytes_per_shard is not None
    survey = partial(survey_shard, options, leave_out, visit)
    sized = [(shard, shard.size) for shard in inputs]
    starts = [*accumulate((size for _, size in sized), initial=0)]

    def report(done: int, total: int) -> None:
        progress(int(_SURVEY * done), total)

    return DatasetSurvey([*jobs.run_sized(survey, sized, executor, progress=report)], starts)


def _increasing(progress: Progress) -> Progress:
    """A progress that never steps back, as when shards are made again."""
    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last
        if done > last:
            last = done
            progress(done, total)

    return report


@dataclass(frozen=True, slots=True)
class _Conversion:
    """What all tasks share."""

    target: Target
    output: Path
    inputs: list[InputShard]
    options: Options
    leave_out: Collection[str]
    extensions: frozenset[str]
    skip_bad: bool


class _ShardTask(NamedTuple):
    """A shard to make. `samples` is the number that it will have if none is skipped."""

    ordinal: int
    begin: ResumePoint
    samples: int


def _convert(
    work: _Conversion, survey: DatasetSurvey, state: ResumeState, executor: Executor | None, progress: Progress
) -> None:
    """Make the shards from the position on, all of them or up to one that ends elsewhere than predicted."""
    target, total = work.target, survey.starts[-1]
    ranges = survey.ranges(state.position, target.samples_per_shard, target.bytes_per_shard)
    tasks, ends = [], []
    for ordinal, (begin, end) in enumerate(ranges, state.records):
        size = survey.bytes_before(end) - survey.bytes_before(begin)
        tasks.append((_ShardTask(ordinal, begin, end.samples - begin.samples), size))
        ends.append(end)
    before = survey.bytes_before(state.position)

    def report(done: int, _: int) -> None:
        progress(int(_SURVEY * total + (1 - _SURVEY) * (before + done)), total)

    staged: list[StagedShard] = []
    try:
        with closing(jobs.run_sized(partial(_make_shard, work), tasks, executor, staged.append, report)) as results:
            for shard, end in zip(results, ends, strict=True):
                state.publish(shard)
                shard.discard()
                if shard.end != end:
                    break
    finally:
        for shard in staged:
            shard.discard()


def _make_shard(work: _Conversion, task: _ShardTask) -> StagedShard:
    with staging(work.output) as directory, atomic_file(record_path(directory, task.ordinal)) as record:
        with work.target.open(str(directory), task.ordinal, work.extensions) as writer:
            end, skipped = _fill(work, task, writer, record)
        record.write(json.dumps(end).encode() + b"\n")
    return StagedShard(directory, task.begin, end, skipped)


def _fill(work: _Conversion, task: _ShardTask, writer: Writer, record: BinaryIO) -> tuple[ResumePoint, int]:
    """Add samples until the shard is full or the dataset ends. Returns where, and the number of skipped ones."""
    begin, count, skipped = task.begin, task.begin.samples, 0
    for number in range(begin.shard, len(work.inputs)):
        shard = work.inputs[number]
        first = begin.ordinal if number == begin.shard else 0
        with closing(samples(shard, work.options, work.leave_out, first)) as all_found:
            for found in all_found:
                skip: bytes | None
                if isinstance(found, TouchfsError):
                    skip = _skip(work, shard.path, None, found)
                elif (skip := _add(work, writer, shard.path, *found)) is None:
                    count += 1
                    reached(count - begin.samples, task.samples)
                    if writer.is_full:
                        return ResumePoint(number, found[0].ordinal + 1, count), skipped
                    continue
                record.write(skip)
                skipped += 1
    return ResumePoint(len(work.inputs), 0, count), skipped


def _add(work: _Conversion, writer: Writer, path: str, sample: StoredSample, files: Files) -> bytes | None:
    """Add a sample to the writer. Returns None, or if it was bad and is skipped, the line that says so."""
    try:
        if sample.problem:
            raise FormatError(sample.problem)
        shown: Mapping[str, Buffer] = {file.label: files.read(file) for file in files.of(sample)}
        if not work.target.copies_files:
            shown = files.with_segments(sample, shown)
    except (FormatError, SourceError) as error:
        return _skip(work, path, sample, error)
    try:
        writer.add(own_key(sample.key, shown, work.options.limits.json), shown)
    except FormatError as error:  # only this: other errors of writing are not the sample's fault
        return _skip(work, path, sample, error)
    return None


def _skip(work: _Conversion, path: str, sample: StoredSample | None, error: TouchfsError) -> bytes:
    reason = str(error)
    if not work.skip_bad:
        place = "" if sample is None else f"sample {sample.ordinal} ({sample.key!r}): "
        reason = reason.removeprefix(f"{path}: ")
        raise type(error)(f"{place}{reason}; mend it, or skip it with --skip-bad", path=path) from error
    of = {} if sample is None else {"sample": sample.ordinal, "key": sample.key}
    return skipped_line({"shard": path, **of, "reason": reason})


if TYPE_CHECKING:
    _: list[type[Target]] = [TarTarget, SharTarget, TouchTarget]
