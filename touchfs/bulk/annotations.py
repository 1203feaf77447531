"""Annotations: export the metainfo of TouchNet shards as JSON lines, and import it again without touching the
recordings.

A line belongs to the sample with its key: the nth line with a key to the nth sample with it, in dataset order; likewise
for lines without a key. All lines are matched before anything is written. Then the shards in which a sample differs
from its line are written one after the other, .bin and .idx together (`bulk/swapped.py`). So an import that was killed
has changed some shards, each of them completely, and is completed by running it again.
"""

from __future__ import annotations

import os
import re
import tempfile
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from touchfs.bulk.swapped import check_replaceable, locked_parents, replacing
from touchfs.errors import FormatError, NotFoundError, UsageError
from touchfs.format.idx import mmidx
from touchfs.format.idx.mmidx_entries import damage_text
from touchfs.format.metainfo import parse_metainfo
from touchfs.limits import LIMITS, Limits, too_long
from touchfs.source.drive import drive
from touchfs.source.local import LocalFile

_BLOCK_SAMPLES = 1024
_TEXT = np.dtype("u1")
_KEEP = -1  # in the place of a line's ordinal: keep what is stored
# JSON has raw line ends only between tokens, where they and the indentation after them have no meaning.
_LINE_END = re.compile(rb"[\r\n][ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class PutReport:
    """The result of an import."""

    samples: int  # changed samples
    shards: int  # changed shards
    ignored: int  # lines without a sample
    kept: int  # samples without a line


class Annotations:
    """The stored metainfo of a shard, in order.

    Raises ChangedError if its files changed since they were first opened.
    """

    def __init__(self, path: str, modality: str, limits: Limits = LIMITS) -> None:
        self.path = path
        self.limits = limits
        self.real_path = os.path.realpath(path)
        self.names = f"{modality}.bin", f"{modality}.idx"
        self._data, self._index = (LocalFile(os.path.join(path, name)) for name in self.names)

    def __iter__(self) -> Iterator[bytes]:
        try:
            self.open()
            size, index_size = self._data.size, self._index.size
            header = mmidx.parse_header(self._index.read(0, min(index_size, mmidx.HEADER_SIZE)), index_size)
            if header.dtype != _TEXT:
                raise FormatError(f"an index of {header.dtype.name}, where metainfo is bytes of text")
            header = drive(mmidx.scan_header(header, size), self._index)
            for first in range(0, header.count, _BLOCK_SAMPLES):
                count = min(_BLOCK_SAMPLES, header.count - first)
                block = drive(mmidx.scan_entries(header, first, count, size), self._index)
                columns = zip(*(each.tolist() for each in (block.offsets, block.lengths, block.damage)), strict=True)
                for ordinal, (offset, length, damage) in enumerate(columns, first):
                    if damage:
                        problem = damage_text(damage, self.names[0].removesuffix(".bin"))
                        raise FormatError(f"sample {ordinal} is damaged: {problem}", path=self._index.path)
                    if length > self.limits.json:
                        problem = too_long(f"the metainfo of sample {ordinal}", self.limits.json)
                        raise FormatError(problem, path=self._data.path)
                    yield self._data.read(offset, length)
        except FormatError as error:
            raise error.at(self._index.path) from error
        finally:
            self.close()

    def open(self) -> None:
        """Open both files, or verify that they have not changed."""
        self._index.open()
        self._data.open()
        self._index.open()  # both files may have been replaced in between

    def close(self) -> None:
        """Close both files."""
        self._index.close()
        self._data.close()

    def key(self, ordinal: int, data: bytes) -> str | None:
        """The key of a sample, or None. Raises FormatError if its metainfo is not a JSON object."""
        try:
            return parse_metainfo(data).key
        except FormatError as error:
            problem = f"sample {ordinal}: {error.message}"
            raise FormatError(problem, path=self._data.path, key=f"{ordinal:08d}") from error


def get_annotations(shards: Iterable[Annotations]) -> Iterator[bytes]:
    """The stored metainfo of each sample on one line, without a line end. Raises FormatError for damaged metainfo."""
    for shard in shards:
        for ordinal, data in enumerate(shard):
            shard.key(ordinal, data)
            yield _one_line(data)


def put_annotations(
    shards: Sequence[Annotations],
    lines: Iterable[bytes],
    *,
    ignore_unknown: bool = False,
    keep_missing: bool = False,
    limits: Limits = LIMITS,
) -> PutReport:
    """Store the lines, without their ends, as metainfo.

    Lines without a sample raise NotFoundError, or are ignored with `ignore_unknown`. Samples without a line raise it
    too, or keep their metainfo with `keep_missing`.
    """
    parents = {}
    for shard in shards:
        if shard.real_path in parents:
            raise UsageError("the shard is in the dataset twice: put into it alone", path=shard.path)
        parents[shard.real_path] = os.path.dirname(shard.real_path)
    with tempfile.TemporaryFile() as file:
        found = _Lines(file, lines, limits.json)
        with locked_parents(sorted(set(parents.values()))):
            plans, report = _match(shards, found, ignore_unknown=ignore_unknown, keep_missing=keep_missing)
            for shard, _ in plans:
                check_replaceable(shard.real_path, shard.names)
            for shard, plan in plans:
                _write(shard, plan, found)
            return report


class _Lines:
    """Lines in a temporary file. Their offsets, and by key the first line not matched yet, are in memory."""

    def __init__(self, file: BinaryIO, lines: Iterable[bytes], limit: int) -> None:
        self._file = file
        self._starts = array("q", [0])
        self._first: dict[str | None, int] = {}
        self._more: dict[str | None, deque[int]] = {}  # further lines of repeated keys
        for ordinal, ended in enumerate(lines):
            line = ended.removesuffix(b"\n").removesuffix(b"\r")
            if len(line) >= mmidx.LENGTH_LIMIT:
                raise FormatError(f"line {ordinal + 1} is too long for a sample")
            if len(line) > limit:
                raise FormatError(too_long(f"line {ordinal + 1}", limit))
            try:
                key = parse_metainfo(line).key
            except FormatError as error:
                raise FormatError(f"line {ordinal + 1}: {error}") from error
            if key in self._first:
                self._more.setdefault(key, deque()).append(ordinal)
            else:
                self._first[key] = ordinal
            file.write(line)
            self._starts.append(self._starts[-1] + len(line))

    def __getitem__(self, ordinal: int) -> bytes:
        start, end = self._starts[ordinal : ordinal + 2]
        self._file.seek(start)
        return self._file.read(end - start)

    def take(self, key: str | None) -> int | None:
        ordinal = self._first.pop(key, None)
        if more := self._more.get(key):
            self._first[key] = more.popleft()
        return ordinal

    @property
    def left(self) -> int:
        """The number of lines not matched to a sample."""
        return len(self._first) + sum(map(len, self._more.values()))

    def first_left(self) -> tuple[int, str | None]:
        return min((ordinal, key) for key, ordinal in self._first.items())


def _match(
    shards: Iterable[Annotations], lines: _Lines, *, ignore_unknown: bool, keep_missing: bool
) -> tuple[list[tuple[Annotations, array[int]]], PutReport]:
    """The shards that change, with the ordinal of each sample's new line or _KEEP, and a report."""
    plans = []
    changed = missing = 0
    first_missing: tuple[str, int, str | None] | None = None
    for shard in shards:
        plan = array("q")
        for ordinal, data in enumerate(shard):
            key = shard.key(ordinal, data)
            line = lines.take(key)
            if line is None:
                missing += 1
                first_missing = first_missing or (shard.path, ordinal, key)
            plan.append(_KEEP if line is None or lines[line] == _one_line(data) else line)
        if count := len(plan) - plan.count(_KEEP):
            plans.append((shard, plan))
            changed += count
    if lines.left and not ignore_unknown:
        line, key = lines.first_left()
        described = "no key" if key is None else f"the key {key!r}"
        remedy = "mend them, or leave them out with --ignore-unknown"
        raise NotFoundError(f"lines for no sample: {lines.left}, first line {line + 1} with {described}; {remedy}")
    if first_missing is not None and not keep_missing:
        path, ordinal, key = first_missing
        remedy = "add lines, or keep what they have with --keep-missing"
        raise NotFoundError(f"samples without a line: {missing}, first sample {ordinal}; {remedy}", path=path, key=key)
    return plans, PutReport(changed, len(plans), lines.left, missing)


def _write(shard: Annotations, plan: Sequence[int], lines: _Lines) -> None:
    sizes = array("q")
    with replacing(shard.real_path, shard.names) as directory:
        data, index = (os.path.join(directory, name) for name in shard.names)
        with open(data, "xb") as file:
            for ordinal, stored in zip(plan, shard, strict=True):
                sizes.append(file.write(stored if ordinal == _KEEP else lines[ordinal]))
        with open(index, "xb") as file:
            file.write(mmidx.build_index(_TEXT, np.asarray(sizes)))
        shard.open()  # verifies
        shard.close()


def _one_line(data: bytes) -> bytes:
    return _LINE_END.sub(b"", data) if b"\n" in data or b"\r" in data else data
