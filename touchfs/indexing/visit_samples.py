"""Visit the samples of a shard and collect their files: all in this process, or parts of one big shard in several.

A part is a range of ordinals. Each process opens the shard once, so only shards are divided that open without reading
their data: JSON lines, of which opening finds the line ends, and TouchDatasets, whose index says where samples are. The
headers of a tar follow each other, and most of the time goes to them: other shards are visited in one process.
Parts are put together in order, so the tables do not depend on how many processes there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from functools import lru_cache
from typing import NamedTuple, cast

from touchfs import jobs, progress
from touchfs.indexing.recording_lengths import measure, without_silent_videos
from touchfs.indexing.tables.row_tables import RowTables
from touchfs.indexing.tables.sample_tables import SampleTables
from touchfs.sample import StoredSample
from touchfs.shard.containers import ShardReader
from touchfs.shard.contents import FieldContents
from touchfs.shard.jsonl import JsonlShard, LineRun
from touchfs.shard.open import keys_are_paths, open_shard
from touchfs.shard.options import Options
from touchfs.shard.segments import SegmentFinder
from touchfs.shard.tables.rows import TableRows
from touchfs.shard.touchnet import TouchNetShard
from touchfs.source.fingerprint import Files, Fingerprint

# Samples of a part: 30 ms of work and 1 MB to send for plain lines, a second and 15 MB for lines with six segments.
PART_SAMPLES = 1 << 13
_DIVIDED = (JsonlShard, TouchNetShard)


class _ShardPart(NamedTuple):
    """Samples of a shard to visit. `files` are pairs of a name and a fingerprint."""

    path: str
    files: tuple[tuple[str, Fingerprint], ...]
    options: Options
    full: bool
    ordinals: range


def visit(
    shard: ShardReader, path: str, files: Files, options: Options, *, full: bool, executor: Executor | None = None
) -> tuple[SampleTables | RowTables, Sequence[str]]:
    """Visit all samples of a shard. Returns the tables, and remarks about segments.

    Raises the errors of sources, and LostWorkerError if a process of the executor dies.
    """
    with closing(FieldContents(path, files, options.limits)) as contents:
        if isinstance(shard, TableRows):
            return RowTables(shard, contents if full else None), ()
        finder = SegmentFinder(contents, options)
        if executor is None or not isinstance(shard, _DIVIDED):
            samples = _runs(shard, range(len(shard))) if isinstance(shard, _DIVIDED) else shard
            made = _collect(progress.each(samples), contents, finder, full=full)
            for place, field in shard.others:
                made.add_other(place, field)
        else:
            made = SampleTables(keys_are_paths=keys_are_paths(path, files))
            named, count = tuple(files.items()), len(shard)
            parts = (
                _ShardPart(path, named, options, full, range(first, min(first + PART_SAMPLES, count)))
                for first in range(0, count, PART_SAMPLES)
            )
            for part in jobs.run(_visit_part, parts, executor):
                made.extend(part)
                progress.advance(part.samples)
        return made, finder.remarks


def _visit_part(part: _ShardPart) -> SampleTables:
    files = dict(part.files)
    with closing(FieldContents(part.path, files, part.options.limits)) as contents:
        samples = _runs(_opened(part.path, part.files, part.options), part.ordinals)
        return _collect(samples, contents, SegmentFinder(contents, part.options), full=part.full)


@lru_cache(1)
def _opened(path: str, files: tuple[tuple[str, Fingerprint], ...], options: Options) -> JsonlShard | TouchNetShard:
    """The open shard, which is kept for its next part."""
    return cast("JsonlShard | TouchNetShard", open_shard(path, options, dict(files)))


def _runs(shard: JsonlShard | TouchNetShard, ordinals: range) -> Iterator[StoredSample | LineRun]:
    """The samples at consecutive ordinals, plain lines together."""
    return shard.runs(ordinals) if isinstance(shard, JsonlShard) else shard.samples(ordinals)


def _collect(
    samples: Iterable[StoredSample | LineRun], contents: FieldContents, finder: SegmentFinder, *, full: bool
) -> SampleTables:
    made = SampleTables(keys_are_paths=keys_are_paths(contents.path, contents.files))
    for sample in samples:
        if isinstance(sample, LineRun):
            made.add_lines(sample)
            progress.advance(len(sample.keys) - 1)  # `progress.each` counts one
            continue
        found = finder.find(sample)
        if full or found.segments is not None:
            sample = without_silent_videos(sample, contents)
        sample, problem = measure(sample, contents) if full else (sample, "")
        made.add(sample, found, problem)
    return made
