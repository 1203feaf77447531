"""Visit the samples of a shard and collect their files: all in this process, or parts of one big shard in several.

A part is a range of ordinals. Each process opens the shard once, so only shards are divided that open without reading
their data: JSON lines, of which opening finds the line ends, and TouchDatasets, whose index says where samples are. The
headers of a tar follow each other, and most of the time goes to them: other shards are visited in one process.
Parts are put together in order, so the tables do not depend on how many processes there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import closing
from functools import lru_cache, partial
from typing import NamedTuple

from touchfs.core import jobs, progress
from touchfs.indexing.recording_lengths import measure, without_silent_videos
from touchfs.indexing.tables.row_tables import RowTables
from touchfs.indexing.tables.sample_tables import SampleTables
from touchfs.registry.containers import Container
from touchfs.registry.contents import FieldContents
from touchfs.registry.open import KnownShard
from touchfs.registry.segments import SegmentFinder
from touchfs.shard.options import Options
from touchfs.shard.sample import SampleRun, ShardReader, StoredSample
from touchfs.source.fingerprint import Fingerprint
from touchfs.tables.rows.rows import TableRows

# Samples of a part: 30 ms of work and 1 MB to send for plain lines, a second and 15 MB for lines with six segments.
PART_SAMPLES = 1 << 13


class _ShardPart(NamedTuple):
    """Samples of a shard to visit. `files` are pairs of a name and a fingerprint."""

    path: str
    container: Container
    files: tuple[tuple[str, Fingerprint], ...]
    options: Options
    full: bool
    contents: bool
    ordinals: range


def visit(
    shard: ShardReader,
    known: KnownShard,
    options: Options,
    *,
    full: bool,
    contents: bool = True,
    executor: Executor | None = None,
) -> SampleTables | RowTables:
    """Visit all samples of an open shard. Returns the tables. Without `contents`, what is in files is left unread.

    Raises the errors of sources, and LostWorkerError if a process of the executor dies.
    """
    with closing(FieldContents(known, options.limits)) as fields:
        if isinstance(shard, TableRows):
            return RowTables(shard, fields if full else None)
        finder = SegmentFinder(fields, options, knows=not contents)
        if executor is None or not known.container.is_divided:
            made = _collect(progress.each(shard.runs(range(len(shard)))), fields, finder, full=full)
            for place, field in shard.others:
                made.add_other(place, field)
        else:
            made = SampleTables(keys_are_paths=known.container.keys_are_paths)
            part_of = partial(
                _ShardPart, known.path, known.container, tuple(known.files.items()), options, full, contents
            )
            count = len(shard)
            parts = (part_of(range(first, min(first + PART_SAMPLES, count))) for first in range(0, count, PART_SAMPLES))
            for part in jobs.run(_visit_part, parts, executor):
                made.extend(part)
                progress.advance(part.samples)
        made.remarks_on_segments = finder.remarks
        return made


def _visit_part(part: _ShardPart) -> SampleTables:
    known = KnownShard(part.path, part.container, dict(part.files))
    with closing(FieldContents(known, part.options.limits)) as fields:
        samples = _opened(part.path, part.container, part.files, part.options).runs(part.ordinals)
        finder = SegmentFinder(fields, part.options, knows=not part.contents)
        return _collect(samples, fields, finder, full=part.full)


@lru_cache(1)
def _opened(
    path: str, container: Container, files: tuple[tuple[str, Fingerprint], ...], options: Options
) -> ShardReader:
    """The open shard, which is kept for its next part."""
    return KnownShard(path, container, dict(files)).open(options)


def _collect(
    samples: Iterable[StoredSample | SampleRun], fields: FieldContents, finder: SegmentFinder, *, full: bool
) -> SampleTables:
    made = SampleTables(keys_are_paths=fields.shard.container.keys_are_paths)
    for sample in samples:
        if isinstance(sample, SampleRun):
            made.add_run(sample)
            progress.advance(len(sample.keys) - 1)  # `progress.each` counts one
            continue
        listed, found, problem = sample, finder.find(sample), ""
        if full:
            sample, problem = measure(without_silent_videos(sample, fields), fields)
        made.measured += sample is not listed
        # What is read for its segments alone does not change how a sample is shown.
        cut = without_silent_videos(sample, fields) if found.segments is not None and not full else sample
        made.add(sample, found, cut, problem)
    made.has_contents = not finder.left
    return made
