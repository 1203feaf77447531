"""Packing: files and a JSONL that lists them become TouchNet shards, byte for byte those of TouchNet's `make_data`.

Shard n holds lines `[n * samples_per_shard, (n + 1) * samples_per_shard)`; `write/making.py` says what a line becomes.
`data.list` names the shards by the path that was typed. Like there, an empty line takes a place in its shard but is no
sample. Unlike there, a sample that cannot be read ends the run, or is skipped on request and then told in
`skipped.jsonl`. Shards appear whole, and `data.list`, last, stands for all of them: until then, the same call again
makes what is missing (`write/unfinished.py`).

Shards are independent, so each is a task for an executor. It is told where its lines begin, not the lines: nowhere is
more than one sample in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from touchfs import jobs
from touchfs.errors import ChangedError, FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.format import mmidx
from touchfs.media.audio import Arithmetic
from touchfs.source.atomic import atomic_file
from touchfs.write import unfinished
from touchfs.write.lines import Lines, Part, split
from touchfs.write.making import DATATYPES, VOCABULARY_MAX, Making, vocabulary_of
from touchfs.write.touch import TouchWriter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PackReport:
    shards: int
    samples: int
    skipped: int


@dataclass(frozen=True, slots=True)
class _Job:
    """All paths are absolute: a worker may run elsewhere."""

    lines: Lines
    output: Path
    making: Making
    skip_bad: bool


@dataclass(frozen=True, slots=True)
class _Packed:
    lines: int
    samples: int


def pack_touch(
    jsonl: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    datatypes: str = "audio+metainfo",
    samples_per_shard: int = 1000,
    rate: int = 16000,
    arithmetic: Arithmetic = "s16",
    tokenizer: str | os.PathLike[str] | None = None,
    vocab_size: int | None = None,
    skip_bad: bool = False,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PackReport:
    """`progress` is told, as shards are done, how many lines they have and how many there are."""
    output = os.fspath(output)
    if output.split() != [output]:
        raise UsageError("data.list cannot hold a path with spaces: choose another output", path=output)
    _check(datatypes, samples_per_shard, rate, tokenizer, vocab_size)
    here = os.getcwd()
    lines, parts = split(os.path.abspath(jsonl), samples_per_shard)
    tokenizer = None if tokenizer is None else os.path.abspath(tokenizer)
    making = Making(datatypes, (here, os.path.dirname(lines.path)), rate, arithmetic, tokenizer)
    job = _Job(lines, Path(here, output), making, skip_bad)
    asked = {
        "jsonl": lines.path,
        "directory": here,
        "output": output,
        "datatypes": datatypes,
        "num-utt-per-shard": samples_per_shard,
        "audio-resample": rate,
        "resample-in": arithmetic,
        "tokenizer": None if tokenizer is None else f"{tokenizer} (SHA-256 {_sha256(tokenizer)})",
        "vocab-size": vocab_size,
        "sha256": lines.sha256,
    }
    try:
        with unfinished.planned(job.output, asked):
            if datatypes == "texttoken":
                job = replace(job, making=replace(making, vocabulary=vocab_size or _vocabulary(job, parts, executor)))
            return _pack(job, parts, output, executor, progress or (lambda lines, total: None))
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=output) from error


def _check(datatypes: str, samples_per_shard: int, rate: int, tokenizer: object, vocab_size: int | None) -> None:
    if datatypes not in DATATYPES:
        raise UsageError(f"cannot make {datatypes}: choose from {', '.join(DATATYPES)}")
    if samples_per_shard < 1 or rate < 1:
        raise UsageError(f"{samples_per_shard} samples per shard at {rate} Hz: both must be positive")
    if datatypes != "texttoken" and (tokenizer, vocab_size) != (None, None):
        raise UsageError(f"a tokenizer or a size of the vocabulary is of no use for {datatypes}, only for texttoken")
    if vocab_size is not None and not 0 < vocab_size <= VOCABULARY_MAX:
        raise UsageError(f"a vocabulary of {vocab_size}: it must be positive, and ids fit into int32")


def _sha256(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise NotFoundError("no such file", path=path) from error
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", path=path) from error


def _vocabulary(job: _Job, parts: list[Part], executor: Executor | None) -> int:
    """Of the tokenizer, or, without one, such that it has the largest id of all lines."""
    if job.making.tokenizer is not None:
        return vocabulary_of(job.making.tokenizer)
    return 1 + max(jobs.run(partial(_largest_id, job), parts, executor), default=-1)


def _largest_id(job: _Job, part: Part) -> int:
    return max(_each(job, part, job.making.largest_id, lambda line: None), default=-1)


def _pack(
    job: _Job, parts: list[Part], output: str, executor: Executor | None, progress: Callable[[int, int], None]
) -> PackReport:
    lines = 0
    total = sum(part.count for part in parts)
    names = [f"{ordinal:09d}" for ordinal in range(len(parts))]
    packed: list[_Packed] = []
    missing: list[tuple[str, Part]] = []

    def done(shard: _Packed) -> None:
        nonlocal lines
        packed.append(shard)
        lines += shard.lines
        progress(lines, total)

    for name, part in zip(names, parts, strict=True):
        if not (job.output / name).exists():
            missing.append((name, part))
        elif not job.skip_bad and unfinished.skipped_path(job.output, name).exists():
            raise UsageError("was begun with --skip-bad: go on with it, or remove it and pack again", path=output)
        else:
            done(_found(job, name, part))
    for _ in jobs.run(partial(_pack_part, job), missing, executor, done):
        pass
    if not (job.output / "data.list").exists():  # else a run was killed that had only to remove its plan
        _publish(job, output, names)
    unfinished.remove_plan(job.output)
    return PackReport(len(packed), sum(shard.samples for shard in packed), _count(job.output / "skipped.jsonl"))


def _found(job: _Job, name: str, part: Part) -> _Packed:
    """A shard that an earlier run made."""
    index = job.output / name / f"{next(iter(job.making.modalities))}.idx"
    try:
        with open(index, "rb") as file:
            header = mmidx.parse_header(file.read(mmidx.HEADER_SIZE), os.fstat(file.fileno()).st_size)
    except FormatError as error:
        raise error.at(str(index)) from None
    return _Packed(part.count, header.count)


def _count(path: Path) -> int:
    """Lines of a file that there may be."""
    try:
        with open(path, "rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def _pack_part(job: _Job, task: tuple[str, Part]) -> _Packed:
    name, part = task
    path = unfinished.skipped_path(job.output, name)
    with (
        unfinished.joined(job.output),
        TouchWriter(job.output / name, job.making.modalities) as writer,
        ExitStack() as stack,  # left first: a shard that is there has its list
    ):
        path.unlink(missing_ok=True)  # of a run that was killed before the shard appeared
        file: BinaryIO | None = None

        def skip(line: bytes) -> None:
            nonlocal file
            file = file or stack.enter_context(atomic_file(path))
            file.write(line)

        def add(line: str) -> bool:
            fields = job.making.make(line)
            if fields is not None:
                writer.add(fields)
            return fields is not None

        samples = sum(_each(job, part, add, skip))
    return _Packed(part.count, samples)


def _each(job: _Job, part: Part, function: Callable[[str], T], skip: Callable[[bytes], None]) -> Iterator[T]:
    """The function's result for each line that has anything. Those that are bad are skipped, if that is wanted."""
    for number, line in job.lines.read(part):
        if not line:
            continue
        try:
            result = function(line)
        except (FormatError, NotFoundError, SourceError, ChangedError) as error:
            if not job.skip_bad:
                raise _at_line(job, number, error) from error
            told = json.dumps({"line": number, "reason": str(error), "text": line}, ensure_ascii=False)
            # What is not UTF-8 is a lone surrogate here, and Python's backslash form of it is JSON's.
            skip(told.encode("utf-8", "backslashreplace") + b"\n")
        else:
            yield result


def _at_line(job: _Job, number: int, error: TouchfsError) -> TouchfsError:
    remedy = "mend it and pack again, or skip it with --skip-bad"
    return type(error)(f"line {number}: {error}; {remedy}", path=job.lines.path)


def _publish(job: _Job, output: str, names: list[str]) -> None:
    lists = [path for name in names if (path := unfinished.skipped_path(job.output, name)).exists()]
    if lists:
        with atomic_file(job.output / "skipped.jsonl") as file:
            for path in lists:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, file)
    with atomic_file(job.output / "data.list") as file:
        file.writelines(os.fsencode(f"{output}/{name} {job.making.datatypes}\n") for name in names)
