"""A shard that is a JSONL file. Each line is a sample with one file, `<key>.json`: the line with its line feed.

The key is the first of `id`, `key` and `cut_id` that is a string or an integer. Blank lines are not samples. A line
that is not a JSON object, or is too long to parse, is served all the same, under its number, and reported as a problem.

With `Limits.audio_root`, the audio that a line names is a file of its sample, too (`touchfs.containers.lines`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.containers.lines.audio import NO_AUDIO, AudioRoot, audio_path, find_audio
from touchfs.containers.lines.layout import line_offsets, value_of, value_span
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.core.json_text import parse_json
from touchfs.core.progress import reached
from touchfs.form.plain import BYTES
from touchfs.format.metainfo import Metainfo
from touchfs.limits import too_long
from touchfs.segments.json_rules import MEMBERS
from touchfs.shard.options import Options
from touchfs.shard.sample import Field, SampleRun, StoredSample, StoredSamples
from touchfs.shard.single import SingleFile
from touchfs.source.fingerprint import Files
from touchfs.source.store import StoredFile

BLOCK_SIZE = 1 << 20
BLOCK_LINES = 1 << 13
KEYS = ("id", "key", "cut_id")


# The ordinal, offset and size of a line, its object, and its problem.
_ParsedLine: TypeAlias = tuple[int, int, int, dict[str, Any], str]


class JsonlShard(SingleFile, StoredSamples):
    """The lines of the JSONL file at `path`. Keeps 16 bytes a line in memory."""

    index_size = 0
    problems = ()

    def __init__(self, path: str, options: Options, files: Files) -> None:
        (name,) = files
        super().__init__(path, name, files)
        self._lines = lines(self._file)
        self._limit = options.limits.json
        root = options.limits.audio_root
        self._audio = None if root is None else AudioRoot(root, options.limits.audio_was, self._name)

    def __len__(self) -> int:
        return len(self._lines)

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal. Reads and parses its line for the key."""
        offset, size = self._lines[ordinal].tolist()
        return self._sample(ordinal, offset, size, *read_line(self._file, offset, size, self._limit))

    def samples(self, ordinals: range) -> Iterator[StoredSample]:
        """The samples at consecutive ordinals. Reads blocks of lines."""
        parsed = self._parsed(ordinals)
        if self._audio is not None:
            parsed = self._audio.ahead(parsed, lambda line: audio_path(line[3]))
        return (self._sample(*line) for line in parsed)

    def runs(self, ordinals: range) -> Iterator[StoredSample | SampleRun]:
        """The samples at consecutive ordinals, plain lines together. Reads blocks of lines."""
        if self._audio is not None:
            yield from self.samples(ordinals)
            return
        first, keys = ordinals.start, list[str | None]()
        for line in self._parsed(ordinals):
            ordinal, _, _, parsed, problem = line
            is_plain = not problem and MEMBERS.isdisjoint(parsed)
            if is_plain:
                keys.append(key_of(parsed))
            if keys and (not is_plain or len(keys) == BLOCK_LINES):
                yield self._run(first, keys)
                first, keys = first + len(keys), []
            if not is_plain:
                yield self._sample(*line)
                first = ordinal + 1
        if keys:
            yield self._run(first, keys)

    def _run(self, first: int, keys: Sequence[str | None]) -> SampleRun:
        spans = self._lines[first : first + len(keys)]
        return SampleRun(first, keys, (line_field(self._name, 0, 0),), spans.reshape(-1, 1, 2))

    def _parsed(self, ordinals: range) -> Iterator[_ParsedLine]:
        first, last, limit = ordinals.start, ordinals.stop, min(self._limit, BLOCK_SIZE)
        while first < last:
            spans = self._lines[first : min(first + BLOCK_LINES, last)]
            start = int(spans[0, 0])
            count = int(np.searchsorted(spans.sum(axis=1), start + limit, "right"))
            if not count:
                offset, size = spans[0].tolist()
                yield first, offset, size, *read_line(self._file, offset, size, self._limit)
                first += 1
                continue
            places = spans[:count].tolist()
            block = bytes(self._file.read(start, sum(places[-1]) - start))
            for ordinal, (offset, size) in enumerate(places, first):
                line = block[offset - start : offset - start + size]
                yield ordinal, offset, size, *parse_line(line, offset)
            first += count

    def _sample(self, ordinal: int, offset: int, size: int, parsed: dict[str, Any], problem: str) -> StoredSample:
        line = line_field(self._name, offset, size)
        audio = NO_AUDIO
        if self._audio is not None:
            try:
                audio = find_audio(line, parsed, self._audio)
            except FormatError as error:
                problem = error.message
        key = key_of(parsed)
        return StoredSample(
            key or f"{ordinal:08d}",
            ordinal,
            {**audio.fields, "json": line},
            Metainfo(key, None, None, parsed),
            problem,
            "json",
            is_keyed=key is not None,
            recording=audio.recording,
            listed=audio.segments,
        )


def line_field(source: str, offset: int, size: int) -> Field:
    """The field that is a line of the file `source`."""
    return Field("json", source, offset, size, BYTES, "json")


def lines(file: StoredFile) -> NDArray[np.int64]:
    """Offset and size, line feed included, of each line that is not blank: an int64 array of shape (lines, 2)."""
    size = file.size

    def blocks() -> Iterator[Buffer]:
        for offset in range(0, size, BLOCK_SIZE):
            yield file.read(offset, min(BLOCK_SIZE, size - offset))
            reached(offset, size)

    kept = []
    last = np.zeros(1, np.int64)
    for starts in line_offsets(blocks()):
        offsets = np.concatenate([last, starts])
        spans = np.stack([offsets[:-1], np.diff(offsets)], axis=1)
        # Drop empty spans (before the first line) and lines of only a line feed, of which there may be billions.
        spans = spans[(spans[:, 1] > 1) | ((spans[:, 1] == 1) & (offsets[1:] == size))]
        short = np.flatnonzero(spans[:, 1] <= 3 + len("\r\n"))  # only so short a line can be blank
        blank = [i for i in short.tolist() if not value_span(file.read(*spans[i].tolist()), int(spans[i, 0]))[1]]
        kept.append(np.delete(spans, blank, axis=0))
        last = offsets[-1:]
    return np.concatenate(kept)


def read_line(file: StoredFile, offset: int, size: int, limit: int) -> tuple[dict[str, Any], str]:
    """Parse a line of a file as a JSON object. Returns ({}, problem) if it is not one or is over the limit."""
    if size > limit:
        return {}, too_long(f"the line at byte {offset}", limit)
    return parse_line(file.read(offset, size), offset)


def parse_line(line: Buffer, offset: int) -> tuple[dict[str, Any], str]:
    """Parse a line as a JSON object. Returns ({}, problem) if it is not one; the problem names `offset`."""
    try:
        parsed = parse_json(value_of(line, offset))
    except (ValueError, RecursionError) as error:
        return {}, f"the line at byte {offset} is not JSON: {error}"
    return (parsed, "") if isinstance(parsed, dict) else ({}, f"the line at byte {offset} is not a JSON object")


def key_of(parsed: Mapping[str, Any]) -> str | None:
    """The key of a sample by its JSON object: the first of `KEYS` that is an integer or a nonempty string, or None."""
    for name in KEYS:
        value = parsed.get(name)
        if type(value) is int or (isinstance(value, str) and value):
            return str(value)
    return None
