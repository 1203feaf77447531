"""Pack a JSONL and the files that it lists into TouchNet shards, byte for byte those of TouchNet's `make_data`.

`bulk/pack/fields.py` makes a sample from a line, `bulk/pack/job.py` makes shards from all lines. `data.list` lists all
shards under the output path as it was typed (`bulk/data_list.py`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from touchfs.bulk.data_list import NAME, write_data_list
from touchfs.bulk.pack.fields import DATATYPES, VOCABULARY_MAX, FieldBuilder, vocabulary_of
from touchfs.bulk.pack.job import Add, ListSurvey, PackReport, PackTarget, pack, places
from touchfs.containers.touchnet.layout import mmidx
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import FormatError, UsageError, map_os_errors
from touchfs.core.progress import Progress
from touchfs.limits import LIMITS, Limits
from touchfs.media.audio import Arithmetic

__all__ = ["PackReport", "pack_touch"]


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
    limits: Limits = LIMITS,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> PackReport:
    """Pack a JSONL into TouchNet shards. `rate` in Hz.

    `progress` is called with the lines of finished shards and the number of all lines. Raises UsageError for settings
    that do not fit together or a used output, and FormatError, NotFoundError or SourceError for a bad line.
    """
    output = os.fspath(output)
    _check(datatypes, samples_per_shard, rate, tokenizer, vocab_size)
    tokenizer = None if tokenizer is None else os.path.abspath(tokenizer)
    builder = FieldBuilder(datatypes, places(jsonl), rate, arithmetic, tokenizer, limits=limits)
    settings = {
        "datatypes": datatypes,
        "num-utt-per-shard": samples_per_shard,
        "audio-resample": rate,
        "resample-in": arithmetic,
        "tokenizer": None if tokenizer is None else f"{tokenizer} (SHA-256 {_sha256(tokenizer)})",
        "vocab-size": vocab_size,
    }

    def make_target(survey: ListSurvey) -> _TouchNetTarget:
        if datatypes == "texttoken":
            return _TouchNetTarget(replace(builder, vocabulary=vocab_size or _vocabulary(builder, survey)), output)
        return _TouchNetTarget(builder, output)

    return pack(jsonl, output, samples_per_shard, make_target, settings, skip_bad, limits, executor, progress)


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
    with map_os_errors(path, "cannot be read"), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _vocabulary(builder: FieldBuilder, survey: ListSurvey) -> int:
    """The size of the tokenizer's vocabulary; without a tokenizer, one more than the largest id in all lines."""
    if builder.tokenizer is not None:
        return vocabulary_of(builder.tokenizer)
    return 1 + max(survey.run(builder.largest_id, _largest), default=-1)


def _largest(ids: Iterable[int]) -> int:
    return max(ids, default=-1)


@dataclass(frozen=True, slots=True)
class _TouchNetTarget:
    builder: FieldBuilder
    typed: str  # the output path as typed

    def mark(self, ordinal: int) -> str:
        return f"{ordinal:09d}"

    def count(self, mark: Path) -> int:
        index = mark / f"{next(iter(self.builder.modalities))}.idx"
        try:
            with open(index, "rb") as file:
                return mmidx.parse_header(file.read(mmidx.HEADER_SIZE), os.fstat(file.fileno()).st_size).count
        except FormatError as error:
            raise error.at(str(index)) from None

    @contextmanager
    def open(self, output: Path, ordinal: int) -> Iterator[Add]:
        with TouchNetWriter(output / self.mark(ordinal), self.builder.modalities) as writer:

            def add(number: int, line: str) -> bool:
                fields = self.builder.make(line)
                if fields is not None:
                    writer.add(fields)
                return fields is not None

            yield add

    def publish(self, output: Path, shards: int) -> None:
        if not (output / NAME).exists():  # else a run was killed just before it removed its plan
            write_data_list(output, self.typed, [*map(self.mark, range(shards))], self.builder.datatypes)


if TYPE_CHECKING:
    _: type[PackTarget] = _TouchNetTarget
