"""Packing: audio files and a JSONL that lists them become TouchNet shards.

The output is, byte for byte, what TouchNet's `make_data` writes for `audio+metainfo`: shard n holds lines
`[n * samples_per_shard, (n + 1) * samples_per_shard)`, each line's audio as headerless 16-bit PCM and its JSON with
`sample_rate` set, and `data.list` names the shards by the path that was typed. Like there, an empty line takes a place
in its shard but is no sample. Unlike there, a sample that cannot be read ends the run, which then takes back its
shards: a `data.list`, written last, stands for a whole dataset.

Shards are independent, so each is a task for an executor. It is told where its lines begin, not the lines: nowhere is
more than one sample in memory.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from touchfs import jobs
from touchfs.errors import ChangedError, FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.format import wav
from touchfs.source.atomic import atomic_file
from touchfs.source.drive import drive
from touchfs.source.local import FileIdentity, LocalFile
from touchfs.write.touch import TouchWriter

_MODALITIES: dict[str, np.dtype[Any]] = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}
_SHARD_NAME = re.compile(r"\d{9}")


@dataclass(frozen=True, slots=True)
class PackReport:
    shards: int
    samples: int
    audio_size: int


@dataclass(frozen=True, slots=True)
class _Part:
    """The lines of one shard: where in the JSONL they begin, how many come before them, how many they are."""

    directory: str
    offset: int
    before: int
    count: int


@dataclass(frozen=True, slots=True)
class _Packed:
    part: _Part
    samples: int
    audio_size: int


def pack_touch(
    jsonl: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    samples_per_shard: int = 1000,
    rate: int = 16000,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PackReport:
    """`progress` is told, as shards are done, how many lines they have and how many there are."""
    output = os.fspath(output)
    if samples_per_shard < 1 or rate < 1:
        raise UsageError(f"{samples_per_shard} samples per shard at {rate} Hz: both must be positive")
    if output.split() != [output]:
        raise UsageError("data.list cannot hold a path with spaces: choose another output", path=output)
    _check_free(output)
    parts = _split(Path(jsonl), output, samples_per_shard)
    total = sum(part.count for part in parts)
    packed: list[_Packed] = []
    lines = 0

    def done(shard: _Packed) -> None:
        nonlocal lines
        packed.append(shard)
        lines += shard.part.count
        if progress is not None:
            progress(lines, total)

    try:
        Path(output).mkdir(parents=True, exist_ok=True)
        for _ in jobs.run(partial(_pack_part, Path.cwd(), Path(jsonl), rate), parts, executor, done):
            pass
        with atomic_file(Path(output, "data.list")) as file:
            file.writelines(os.fsencode(f"{part.directory} {'+'.join(_MODALITIES)}\n") for part in parts)
    except BaseException as error:
        for shard in packed:
            shutil.rmtree(shard.part.directory, ignore_errors=True)
        if isinstance(error, OSError):
            raise SourceError(f"cannot be written: {error.strerror}", path=output) from error
        raise
    return PackReport(len(packed), sum(shard.samples for shard in packed), sum(shard.audio_size for shard in packed))


def _check_free(output: str) -> None:
    try:
        names = os.listdir(output)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(f"cannot be the output: {error.strerror}", path=output) from error
    for name in names:
        if name == "data.list" or _SHARD_NAME.fullmatch(name):
            raise UsageError(f"already holds {name}: remove it, or choose another output", path=output)


def _split(jsonl: Path, output: str, samples_per_shard: int) -> list[_Part]:
    """Lines end as in Python's text files: \\n, \\r\\n or \\r."""
    starts = []
    offset = count = 0
    try:
        # newline="" keeps line ends, so that offsets add up; surrogateescape lets us say which line is not UTF-8.
        with open(jsonl, encoding="utf-8", errors="surrogateescape", newline="") as file:
            for line in file:
                if count % samples_per_shard == 0:
                    starts.append(offset)
                offset += len(line.encode("utf-8"))
                count += 1
    except UnicodeEncodeError as error:
        raise FormatError(f"line {count + 1}: not UTF-8", path=str(jsonl), offset=offset) from error
    except FileNotFoundError as error:
        raise NotFoundError("no such file", path=str(jsonl)) from error
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", path=str(jsonl)) from error
    befores = range(0, count, samples_per_shard)
    return [
        _Part(f"{output}/{ordinal:09d}", offset, before, min(samples_per_shard, count - before))
        for ordinal, (offset, before) in enumerate(zip(starts, befores, strict=True))
    ]


def _pack_part(here: Path, jsonl: Path, rate: int, part: _Part) -> _Packed:
    """All paths are relative to `here`: a worker may run elsewhere."""
    audio_size = 0
    with TouchWriter(here / part.directory, _MODALITIES) as writer:
        for number, line in _lines(here / jsonl, part):
            if not line:
                continue
            try:
                audio, metainfo = _load(line, (here, here / jsonl.parent), rate)
                writer.add({"audio": audio, "metainfo": metainfo})
            except TouchfsError as error:
                raise type(error)(f"line {number}: {error}", path=str(jsonl)) from error
            audio_size += len(audio)
        return _Packed(part, len(writer), audio_size)


def _lines(jsonl: Path, part: _Part) -> Iterator[tuple[int, str]]:
    """Numbered from 1 over the whole file."""
    count = 0
    with open(jsonl, "rb") as file:
        file.seek(part.offset)
        text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape")
        for count, line in enumerate(islice(text, part.count), 1):
            yield part.before + count, line.strip()
    if count != part.count:
        raise ChangedError("has become shorter while it was packed: pack again", path=str(jsonl))


def _load(line: str, places: Sequence[Path], rate: int) -> tuple[bytes, bytes]:
    """Audio and metainfo of one sample."""
    try:
        described = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from error
    if not isinstance(described, dict) or not isinstance(described.get("wav"), str):
        raise FormatError('expected a JSON object with the path of a WAV file as "wav"')
    audio = _read_audio(_locate(described["wav"], places), rate)
    described["sample_rate"] = rate
    try:
        return audio, json.dumps(described, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise FormatError(f"cannot be written as UTF-8: {error}") from error


def _locate(path: str, places: Sequence[Path]) -> str:
    """Relative to where we run, as TouchNet; where that is nothing, relative to the JSONL."""
    paths = [str(place / path) for place in places]
    return next(filter(os.path.exists, paths), paths[-1])


def _read_audio(path: str, rate: int) -> bytes:
    try:
        stat = os.stat(path)
    except FileNotFoundError as error:
        raise NotFoundError("no such file", path=path) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise SourceError(f"cannot be read: {error}", path=path) from error
    source = LocalFile(path, FileIdentity.of(stat))
    try:
        found = drive(wav.scan(stat.st_size), source)
        if (found.codec, found.bits, found.channels, found.rate) != (wav.PCM, 16, 1, rate) or found.data_size % 2:
            codec = "PCM" if found.codec == wav.PCM else f"codec {found.codec:#x}"
            raise FormatError(
                f"{codec} of {found.bits} bits, {found.channels} channels, {found.rate} Hz, {found.data_size} bytes"
            )
        return source.read(found.data_offset, found.data_size)
    except FormatError as error:
        expected = f"expected a WAV file of PCM of 16 bits, 1 channel, {rate} Hz"
        remedy = f"try ffmpeg -i IN -ac 1 -ar {rate} -c:a pcm_s16le OUT.wav"
        raise FormatError(f"{error.message}; {expected}: {remedy}", path=path, offset=error.offset) from error
    finally:
        source.close()
