"""One task of a conversion: a new shard, and its record, in a directory of their own.

The samples come from the dataset in order, from where the shard begins until it is full. A sample that is damaged or
refused is an error, or a line of the record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from touchfs.bulk.convert.input import Files, InputShard, samples
from touchfs.bulk.convert.names import own_key
from touchfs.bulk.convert.resume import ResumePoint, StagedShard, record_path, staging
from touchfs.bulk.convert.target import Target, Writer
from touchfs.bulk.skipped import skipped_line
from touchfs.core.errors import FormatError, SourceError, TouchfsError
from touchfs.core.extent import Buffer
from touchfs.core.progress import reached
from touchfs.posix.atomic import atomic_file
from touchfs.shard.options import Options
from touchfs.shard.sample import StoredSample


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion, as all its tasks know it. `names` are the paths of the inputs as messages and lists have them."""

    target: Target
    output: Path
    inputs: list[InputShard]
    names: list[str]
    options: Options
    leave_out: Collection[str]
    extensions: frozenset[str]
    skip_bad: bool


class ShardTask(NamedTuple):
    """A shard to make. `samples` is the number that it will have if none is skipped."""

    ordinal: int
    begin: ResumePoint
    samples: int


def make_shard(work: Conversion, task: ShardTask) -> StagedShard:
    """Make a shard and its record. Raises the errors of the dataset, of the target and of the output."""
    with staging(work.output) as directory, atomic_file(record_path(directory, task.ordinal)) as record:
        with work.target.open(str(directory), task.ordinal, work.extensions) as writer:
            end, skipped = _fill(work, task, writer, record)
        record.write(json.dumps(end).encode() + b"\n")
    return StagedShard(directory, task.begin, end, skipped)


def _fill(work: Conversion, task: ShardTask, writer: Writer, record: BinaryIO) -> tuple[ResumePoint, int]:
    """Add samples until the shard is full or the dataset ends. Returns where, and the number of skipped ones."""
    begin, count, skipped = task.begin, task.begin.samples, 0
    for number in range(begin.shard, len(work.inputs)):
        shard = work.inputs[number]
        first = begin.ordinal if number == begin.shard else 0
        found_samples = samples(shard, work.options, work.leave_out, first, work.target.new_names)
        with closing(found_samples) as all_found:
            for position, found in enumerate(all_found, first):
                skip: bytes | None
                if isinstance(found, TouchfsError):
                    skip = _skip(work, number, None, found)
                elif (skip := _add(work, writer, number, *found)) is None:
                    count += 1
                    reached(count - begin.samples, task.samples)
                    if writer.is_full:
                        return ResumePoint(number, position + 1, count), skipped
                    continue
                record.write(skip)
                skipped += 1
    return ResumePoint(len(work.inputs), 0, count), skipped


def _add(work: Conversion, writer: Writer, number: int, sample: StoredSample, files: Files) -> bytes | None:
    """Add a sample to the writer. Returns None, or if it was bad and is skipped, the line that says so."""
    try:
        if sample.problem:
            raise FormatError(sample.problem)
        shown: Mapping[str, Buffer] = {file.label: files.read(file) for file in files.of(sample)}
        if not work.target.copies_files or files.has_lists:
            shown = files.with_segments(sample, shown)
        elif sample.listed is not None:
            shown = files.with_listed_segments(sample, shown)
    except (FormatError, SourceError) as error:
        return _skip(work, number, sample, error)
    try:
        writer.add(own_key(sample.key, shown, work.options.limits.json), shown)
    except FormatError as error:  # only this: other errors of writing are not the sample's fault
        return _skip(work, number, sample, error)
    return None


def _skip(work: Conversion, number: int, sample: StoredSample | None, error: TouchfsError) -> bytes:
    path = work.names[number]
    reason = str(error).replace(work.inputs[number].path, path)  # the same on a cluster as here
    if not work.skip_bad:
        place = "" if sample is None else f"sample {sample.ordinal} ({sample.key!r}): "
        reason = reason.removeprefix(f"{path}: ")
        raise type(error)(f"{place}{reason}; fix it, or skip it with --skip-bad", path=path) from error
    of = {} if sample is None else {"sample": sample.ordinal, "key": sample.key}
    return skipped_line({"shard": path, **of, "reason": reason})
