"""The view `merged/<plan>/`: the segments of a sample merged by a plan, as `<key>/0000.wav`, `.json` and `.txt`.

Everything comes from the catalog's table of segments: the range of each segment's `.wav` and the content of its
`.json`. So no audio and no metainfo is read, and a new plan needs no new index. If the length of a recording is found
only when it is needed, runs are found in microseconds, and a segment that leaves the recording counts in full. Each
file is identified by the row of a file of one of its parts, so it has an inode number without a table: `.wav` and
`.json` by those of the first part of the run, `.txt` by that of the first part that has the text. The plan may show the
audio as a `.flac` instead of a `.wav`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from touchfs.catalog.table import Table
from touchfs.core.errors import FormatError
from touchfs.form.recordings import extend_piece
from touchfs.segments.packed_times import CLOCK_RATE, ENDLESS, join_times
from touchfs.view.plan import MergePlan, Span, as_json, joined_text, merge, span_of
from touchfs.view.segments import JSON, TEXT, WAV, rows_of_segments, segment_name, text_ending

# Offset and length in the source, and the detail of a form
_Bytes: TypeAlias = tuple[int, int, bytes]


class MergedFile(NamedTuple):
    """A file of the run `number`, and the row of the table of segments that identifies it.

    Its bytes are `data`. If that is None, it is the audio: made from `length` bytes at `offset` of the source of the
    row's kind, with this `detail`, and rendered as the plan says.
    """

    number: int
    ending: str
    row: int
    run: list[int]
    data: bytes | None = None
    offset: int = 0
    length: int = 0
    detail: bytes = b""

    @property
    def name(self) -> bytes:
        return segment_name(self.number, self.ending).encode()


def merged_files(plan: MergePlan, table: Table, ordinal: int) -> list[MergedFile]:
    """The files of a sample under a plan, in name order, from the table of segments of its shard.

    Raises FormatError if the rows of the table are damaged.
    """
    try:
        return _merged_files(plan, table, ordinal)
    except (AttributeError, IndexError, KeyError, RecursionError, StopIteration, TypeError, ValueError) as error:
        problem = f"the segments of sample {ordinal} are damaged in the catalog: index with --force"
        raise FormatError(problem, path=table.path_of_catalog) from error


def _merged_files(plan: MergePlan, table: Table, ordinal: int) -> list[MergedFile]:
    rows = rows_of_segments(table, ordinal)
    stored: list[dict[str, Any]] = []
    while (row := rows.get(len(stored), {}).get(JSON)) is not None:
        stored.append(json.loads(table.inline(row))["touchfs"])
    if not stored or not all("start" in each or "sample_rate" in each for each in stored):
        return []  # there is no recording, or its segments have times in samples of an unknown rate
    key, clock = stored[0]["key"], _clock_of(stored[0])
    spans = [clock.span(each) for each in stored]
    files, audio = [], "flac" if plan.format == "flac" else WAV
    for number, run in enumerate(merge(plan, key, spans, clock.rate)):
        wavs = [rows[part][WAV] for part in run]
        files.append(MergedFile(number, audio, wavs[0], run, None, *clock.joined(table, wavs, spans, run)))
        named = [rows[part].get(text_ending(plan.text)) for part in run]
        text = joined_text(None if row is None else table.inline(row).decode() for row in named)
        times, parts = clock.times(span_of(spans, run)), [{"segment": part} | clock.part(spans[part]) for part in run]
        description = json.dumps(as_json(plan, key, number, times, parts, text), ensure_ascii=False) + "\n"
        files.append(MergedFile(number, JSON, rows[run[0]][JSON], run, _encoded(description)))
        if text is not None:
            files.append(MergedFile(number, TEXT, next(row for row in named if row is not None), run, _encoded(text)))
    return sorted(files, key=lambda file: file.name)


def _clock_of(stored: dict[str, Any]) -> _Samples | _Microseconds:
    return _Samples(stored["sample_rate"]) if "sample_rate" in stored else _Microseconds()


class _Samples(NamedTuple):
    """Spans of a recording of known length, in samples."""

    rate: int

    def span(self, stored: dict[str, Any]) -> Span:
        """The span that the `.json` of a segment has."""
        return stored["offset"], stored["length"]

    def joined(self, table: Table, wavs: Sequence[int], spans: Sequence[Span], run: Sequence[int]) -> _Bytes:
        """Offset, length and detail of the `.wav` of a run, whose segments have the rows `wavs`."""
        first = table.offset[wavs[0]], table.length[wavs[0]], table.inline(wavs[0])
        return extend_piece(*first, spans[run[0]], span_of(spans, run))

    def times(self, span: Span) -> dict[str, Any]:
        """The span of a run as its `.json` has it."""
        offset, length = span
        return {
            "sample_rate": self.rate,
            "offset": offset,
            "length": length,
            "start": offset / self.rate,
            "end": (offset + length) / self.rate,
        }

    def part(self, span: Span) -> dict[str, Any]:
        """The span of a part as the `.json` of a run has it."""
        return {"offset": span[0], "length": span[1]}


class _Microseconds:
    """Spans of a recording whose rate and length are not known yet."""

    rate = CLOCK_RATE

    def span(self, stored: dict[str, Any]) -> Span:
        start, end = stored["start"], stored["end"]
        first = round(start * CLOCK_RATE)
        return first, (ENDLESS if end is None else round(end * CLOCK_RATE)) - first

    def joined(self, table: Table, wavs: Sequence[int], spans: Sequence[Span], run: Sequence[int]) -> _Bytes:
        return table.offset[wavs[0]], table.length[wavs[0]], join_times(map(table.inline, wavs))

    def times(self, span: Span) -> dict[str, Any]:
        offset, end = span[0], sum(span)
        return {"start": offset / CLOCK_RATE, "end": None if end >= ENDLESS else end / CLOCK_RATE}

    part = times


def _encoded(text: str) -> bytes:
    """UTF-8. A lone surrogate, which JSON can contain, becomes U+FFFD, as in the segments' own files."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
