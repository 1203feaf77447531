"""Pack a JSONL and the files that it lists into tars for WebDataset, or into Lhotse Shar.

For a line as in TouchNet's make_data, the sample has

    <the extension of `wav`>   the recording: the file itself, or if a format is chosen, decoded and encoded again
    json                       the line; with the rate, if the recording was resampled
    txt                        its text

and the key of the line, else its number. `bulk/convert/tar.py` and `bulk/convert/shar.py` decide how that is stored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from touchfs.bulk.convert.audio import to_pcm
from touchfs.bulk.convert.sample import JSON, TEXT
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.pack.fields import DATATYPES, FieldBuilder, locate, parse_row
from touchfs.bulk.pack.job import Add, ListSurvey, PackReport, PackTarget, pack, places
from touchfs.containers.shar.write.audio import encode
from touchfs.containers.tar.layout.grouping import Dialect
from touchfs.core.errors import FormatError, TouchfsError, UsageError
from touchfs.core.extent import Buffer
from touchfs.core.progress import Progress
from touchfs.format.idx.offsets import OFFSET
from touchfs.format.metainfo import parse_metainfo
from touchfs.limits import LIMITS, Limits
from touchfs.media.audio import Arithmetic
from touchfs.media.extensions import AUDIO
from touchfs.peers.write import offset_blocks
from touchfs.source.data import DATA

AUDIO_FORMATS = ("wav", "flac")


@dataclass(frozen=True, slots=True)
class SampleReader:
    """Makes the sample of a line. If `format` is None, the recording is stored as it is; `rate` is in Hz."""

    builder: FieldBuilder
    format: str | None
    rate: int | None

    def read(self, number: int, line: str) -> tuple[str, dict[str, Buffer]]:
        """The key and the files, by extension, of a line. Raises FormatError, NotFoundError or SourceError."""
        row = parse_row(line)
        stored = line.encode()
        metainfo = parse_metainfo(stored)
        path, size = locate(row, "wav", self.builder)
        extension = self.extension(line)
        source = DATA.open(path)
        try:
            recording: Buffer = source.read(0, size)
        finally:
            source.close()
        if self.format is not None:
            try:
                builder = self.builder
                pcm, rate = to_pcm(recording, self.rate, builder.arithmetic, builder.limits.decoded)
            except TouchfsError as error:
                raise error.at(path) from error
            recording = encode(np.frombuffer(pcm, "<i2")[None], rate, self.format)
            if self.rate is not None and metainfo.rate != rate:
                stored = json.dumps(row | {"sample_rate": rate}).encode()
        files = {extension: recording, JSON: stored}
        if metainfo.text is not None:
            try:
                files[TEXT] = metainfo.text.encode()
            except UnicodeEncodeError as error:  # JSON can contain a lone surrogate
                raise FormatError("its text cannot be written as UTF-8") from error
        return metainfo.key or f"{number - 1:08d}", files

    def extension(self, line: str) -> str:
        """The extension of a line's recording. Raises FormatError, NotFoundError or SourceError."""
        if self.format is not None:
            return self.format
        path, _ = locate(parse_row(line), "wav", self.builder)
        extension = os.path.splitext(path)[1][1:]
        if extension.lower() not in AUDIO:
            raise FormatError("has no extension of a recording: choose --audio-format", path=path)
        return extension


def pack_tar(
    jsonl: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    samples_per_shard: int = 1000,
    audio_format: str | None = None,
    rate: int | None = None,
    arithmetic: Arithmetic = "s16",
    create_index: bool = False,
    skip_bad: bool = False,
    limits: Limits = LIMITS,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> PackReport:
    """Pack a JSONL into tars `%06d.tar`. A rate (Hz) without a format makes WAV. Raises as `pack_touch`."""
    reader = _sample_reader(jsonl, samples_per_shard, audio_format, rate, arithmetic, limits)
    settings = _settings("tar", samples_per_shard, reader) | {"index": create_index}
    target = _SamplesTarget(reader, TarTarget(create_index=create_index))
    output = os.fspath(output)
    return pack(jsonl, output, samples_per_shard, lambda survey: target, settings, skip_bad, limits, executor, progress)


def pack_shar(
    jsonl: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    samples_per_shard: int = 1000,
    audio_format: str | None = None,
    rate: int | None = None,
    arithmetic: Arithmetic = "s16",
    skip_bad: bool = False,
    limits: Limits = LIMITS,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> PackReport:
    """Pack a JSONL into `cuts.%06d.jsonl` and `recording.%06d.tar`, each with its index. Raises as `pack_touch`.

    A range of lines without samples leaves no files, as Lhotse has no empty shards.
    """
    reader = _sample_reader(jsonl, samples_per_shard, audio_format, rate, arithmetic, limits)
    settings = _settings("shar", samples_per_shard, reader)

    def make_target(survey: ListSurvey) -> PackTarget:
        if reader.format is not None:
            extensions = frozenset({reader.format})
        else:
            extensions = _union(survey.run(partial(_extensions, reader), _union))
        return _SamplesTarget(reader, SharTarget(limits=limits), extensions)

    output = os.fspath(output)
    return pack(jsonl, output, samples_per_shard, make_target, settings, skip_bad, limits, executor, progress)


def _sample_reader(
    jsonl: str | os.PathLike[str],
    samples_per_shard: int,
    name: str | None,
    rate: int | None,
    arithmetic: Arithmetic,
    limits: Limits,
) -> SampleReader:
    if name is None and rate is not None:
        name = AUDIO_FORMATS[0]
    if name not in (None, *AUDIO_FORMATS):
        raise UsageError(f"recordings cannot be made {name}: choose from {', '.join(AUDIO_FORMATS)}")
    if samples_per_shard < 1 or (rate is not None and rate < 1):
        raise UsageError(f"{samples_per_shard} samples per shard at {rate} Hz: both must be positive")
    builder = FieldBuilder(DATATYPES[0], places(jsonl), rate or 0, arithmetic, limits=limits)
    return SampleReader(builder, name, rate)


def _settings(kind: str, samples_per_shard: int, reader: SampleReader) -> dict[str, object]:
    return {
        "kind": kind,
        "num-utt-per-shard": samples_per_shard,
        "audio-format": reader.format,
        "audio-resample": reader.rate,
        "resample-in": reader.builder.arithmetic,
    }


def _extensions(reader: SampleReader, line: str) -> frozenset[str]:
    return frozenset({reader.extension(line)})


def _union(found: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*found)


@dataclass(frozen=True, slots=True)
class _SamplesTarget:
    """Stores the samples of lines as the target of a conversion does. `extensions` are those of all recordings."""

    reader: SampleReader
    target: TarTarget | SharTarget
    extensions: frozenset[str] = frozenset()

    def mark(self, ordinal: int) -> str:
        return self.target.mark(ordinal)

    def count(self, mark: Path) -> int:
        size = mark.stat().st_size
        if mark.suffix == ".idx":
            return size // OFFSET.itemsize - 1
        source = DATA.open(str(mark))
        try:
            return sum(map(len, offset_blocks(source, size, Dialect.ENERGON))) - 1
        finally:
            source.close()

    @contextmanager
    def open(self, output: Path, ordinal: int) -> Iterator[Add]:
        with self.target.open(str(output), ordinal, self.extensions) as writer:

            def add(number: int, line: str) -> bool:
                writer.add(*self.reader.read(number, line))
                return True

            yield add

    def publish(self, output: Path, shards: int) -> None:
        """Do nothing: the shards are complete by themselves."""


if TYPE_CHECKING:
    _: type[PackTarget] = _SamplesTarget
