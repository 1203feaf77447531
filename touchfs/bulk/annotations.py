"""Annotations: export the metainfo of TouchNet shards as JSON lines, and import it again without touching the
recordings.

A line belongs to the sample with its key: the nth line with a key to the nth sample with it, in dataset order; likewise
for lines without a key. All lines are matched before anything is written. Then each shard in which a sample differs
from its line is written, .bin and .idx together (`bulk/replace_files.py`). So an import that was killed has changed
some shards, each of them completely, and is completed by running it again.

Shards are read and written in tasks for an executor. The process that matches lines has a key and a digest for each.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from touchfs.bulk.annotation_lines import KEEP, AnnotationLines, digest, one_line
from touchfs.bulk.replace_files import check_replaceable, locked_parents, replacing
from touchfs.containers.touchnet.layout import mmidx
from touchfs.containers.touchnet.layout.mmidx_entries import damage_text
from touchfs.core import jobs
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, UsageError, map_os_errors
from touchfs.core.extent import drive
from touchfs.core.location import Location
from touchfs.core.task_paths import is_here, path_there
from touchfs.format.metainfo import parse_metainfo
from touchfs.limits import LIMITS, Limits, too_long
from touchfs.posix.atomic import SWAP_PREFIX
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint

_BLOCK_SAMPLES = 1024
_TEXT = np.dtype("u1")


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

    def __init__(
        self,
        path: str,
        modality: str,
        limits: Limits = LIMITS,
        fingerprints: Sequence[Fingerprint | None] = (None, None),
    ) -> None:
        self.path = path
        self.limits = limits
        self.real_path = Location.of(path).resolved
        self.names = f"{modality}.bin", f"{modality}.idx"
        self._modality = modality
        self.fingerprints = fingerprints

    @property
    def fingerprints(self) -> Sequence[Fingerprint | None]:
        """The fingerprints of both files, None before they are opened."""
        return self._data.fingerprint, self._index.fingerprint

    @fingerprints.setter
    def fingerprints(self, fingerprints: Sequence[Fingerprint | None]) -> None:
        paths = (os.path.join(self.path, name) for name in self.names)
        self._data, self._index = map(DATA.open, paths, fingerprints)

    def __reduce__(self) -> tuple[Any, ...]:
        return Annotations, (self.path, self._modality, self.limits, self.fingerprints)

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

    def at(self, path: str) -> Annotations:
        """The same by another path, with the fingerprints that are known."""
        return Annotations(path, self._modality, self.limits, self.fingerprints)

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
            yield one_line(data)


def put_annotations(
    shards: Sequence[Annotations],
    lines: Iterable[bytes],
    *,
    ignore_unknown: bool = False,
    keep_missing: bool = False,
    limits: Limits = LIMITS,
    executor: Executor | None = None,
) -> PutReport:
    """Store the lines, without their ends, as metainfo. The executor's workers see the shards and the directories that
    they are in.

    Lines without a sample raise NotFoundError, or are ignored with `ignore_unknown`. Samples without a line raise it
    too, or keep their metainfo with `keep_missing`.
    """
    parents = {}
    for shard in shards:
        if Location.of(shard.path).is_url:
            problem = "annotations are replaced in shards of this machine only: copy them, put, and upload them"
            raise UsageError(problem, path=shard.path)
        if shard.real_path in parents:
            raise UsageError("the shard is in the dataset twice: put into it alone", path=shard.path)
        parents[shard.real_path] = os.path.dirname(shard.real_path)
    with tempfile.TemporaryFile() as file:
        found = AnnotationLines(file, lines, limits.json)
        with locked_parents(sorted(set(parents.values()))):
            there = {shard.path: path_there(executor, shard.path) for shard in shards}
            contents = jobs.run(_read, (shard.at(there[shard.path]) for shard in shards), executor)
            plans, report = _match(shards, contents, found, ignore_unknown=ignore_unknown, keep_missing=keep_missing)
            for shard, _ in plans:
                check_replaceable(shard.real_path, shard.names)
            with _shared(found.path, executor, plans) as path:
                tasks = (_Rewrite(shard.at(there[shard.path]), path, *found.ranges(plan)) for shard, plan in plans)
                for _ in jobs.run(_write, tasks, executor):
                    pass
            return report


@contextmanager
def _shared(lines: str, executor: Executor | None, plans: Sequence[tuple[Annotations, array[int]]]) -> Iterator[str]:
    """The path of the lines for the executor's workers. On a cluster, others do not see our open files: there it is a
    copy beside a shard, and what a kill leaves of it is removed with the rest (`bulk/replace_files.py`).
    """
    if is_here(executor) or not plans:
        yield lines
        return
    beside = os.path.dirname(plans[0][0].real_path)
    with map_os_errors(beside), tempfile.TemporaryDirectory(prefix=SWAP_PREFIX, dir=beside) as directory:
        yield shutil.copyfile(lines, os.path.join(directory, "lines"))


class _Contents(NamedTuple):
    """The keys of a shard's samples, digests of their metainfo on one line, and the fingerprints of its files."""

    keys: list[str | None]
    digests: list[bytes]
    fingerprints: Sequence[Fingerprint | None]


class _Rewrite(NamedTuple):
    """A shard to write, and for each sample the range of its new line in the file at `lines`, or KEEP for both."""

    shard: Annotations
    lines: str
    starts: array[int]
    sizes: array[int]


def _read(shard: Annotations) -> _Contents:
    keys, digests = [], []
    for ordinal, data in enumerate(shard):
        keys.append(shard.key(ordinal, data))
        digests.append(digest(one_line(data)))
    return _Contents(keys, digests, shard.fingerprints)


def _match(
    shards: Iterable[Annotations],
    contents: Iterable[_Contents],
    lines: AnnotationLines,
    *,
    ignore_unknown: bool,
    keep_missing: bool,
) -> tuple[list[tuple[Annotations, array[int]]], PutReport]:
    """The shards that change, with the ordinal of each sample's new line or KEEP, and a report."""
    plans = []
    changed = missing = 0
    first_missing: tuple[str, int, str | None] | None = None
    for shard, (keys, digests, fingerprints) in zip(shards, contents, strict=True):
        shard.fingerprints = fingerprints
        plan = array("q")
        for ordinal, (key, stored) in enumerate(zip(keys, digests, strict=True)):
            line = lines.take(key)
            if line is None:
                missing += 1
                first_missing = first_missing or (shard.path, ordinal, key)
            plan.append(KEEP if line is None or lines.digest(line) == stored else line)
        if count := len(plan) - plan.count(KEEP):
            plans.append((shard, plan))
            changed += count
    if lines.left and not ignore_unknown:
        line, key = lines.first_left()
        described = "no key" if key is None else f"the key {key!r}"
        remedy = "fix them, or leave them out with --ignore-unknown"
        raise NotFoundError(f"lines for no sample: {lines.left}, first line {line + 1} with {described}; {remedy}")
    if first_missing is not None and not keep_missing:
        path, ordinal, key = first_missing
        remedy = "add lines, or keep what they have with --keep-missing"
        raise NotFoundError(f"samples without a line: {missing}, first sample {ordinal}; {remedy}", path=path, key=key)
    return plans, PutReport(changed, len(plans), lines.left, missing)


def _write(task: _Rewrite) -> None:
    try:
        _replace(task)
    except ChangedError:
        if not _is_done(task):
            raise


def _is_done(task: _Rewrite) -> bool:
    """True if the shard has all new lines. A worker of a cluster may be lost after it had replaced the shard, and
    before it said so; then another one gets the task.
    """
    task.shard.fingerprints = (None, None)  # of what is there now
    with open(task.lines, "rb") as lines:
        return all(
            None not in (stored, start) and (start == KEEP or stored == os.pread(lines.fileno(), size, start))
            for stored, start, size in zip_longest(task.shard, task.starts, task.sizes)
        )


def _replace(task: _Rewrite) -> None:
    shard, ranges = task.shard, zip(task.starts, task.sizes, strict=True)
    written = array("q")
    with replacing(shard.real_path, shard.names) as directory, open(task.lines, "rb") as lines:
        data, index = (os.path.join(directory, name) for name in shard.names)
        with open(data, "xb") as file:
            for (start, size), stored in zip(ranges, shard, strict=True):
                written.append(file.write(stored if start == KEEP else os.pread(lines.fileno(), size, start)))
        with open(index, "xb") as file:
            file.write(mmidx.build_index(_TEXT, np.asarray(written)))
        shard.open()  # verifies
        shard.close()
