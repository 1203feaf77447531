"""The view `segments/`: each time segment of a recording as files of its own, `<key>/0000.wav`, `.txt`, `.json`.

The `.wav` is a header and a range of the recording's PCM, or the samples of a coded recording, decoded when they are
read. The `.json` is the segment as stored, and under `touchfs` what was derived from it: the span in samples, or in
seconds if the recording's length is found only when the `.wav` is needed. An empty segment is a valid `.wav` without
samples, and its `.json` gives the reason. If the sample has no recording that can be cut, a segment has no `.wav`, and
its `.json` says why. If the sample has a video, a segment has an `.mp4` of it, too, whose size is found when it is
needed. Samples without segments are not in this view.

Text comes in versions (`touchfs.segments.segment`). The default one is `0000.txt`, every other `0000.<version>.txt`:

    {"start": 0, "end": 1.5, "txt": "…", "paraformer": "…", "txts": {"whisper": "…"}}
        0000.txt  0000.paraformer.txt  0000.whisper.txt
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from touchfs.catalog.table import Table
from touchfs.core.names import quote
from touchfs.media.extensions import is_recording
from touchfs.shard.sample import SampleSegments, StoredSample, recording_in, video_in, video_piece
from touchfs.view.file import ViewFile

# What the files of a segment end in. A text of another version has `text_ending`.
WAV, MP4, JSON, TEXT = "wav", "mp4", "json", "txt"
# In bytes, when quoted: a file's name has at most 255, including a number and `.txt`.
VERSION_MAX = 200
# Without details: they are in the .json, because a catalog has only a limited number of kinds of file.
NOTE = "not all that the segment asks for: its .json says why"
_CUTS = "supervisions"
_encode = json.JSONEncoder(ensure_ascii=False).encode


def files(sample: StoredSample, found: SampleSegments | None) -> Iterator[ViewFile]:
    """Yield the files of all segments of a sample. `ViewFile.extension` is the whole name: `0000.wav`, …

    All files of a day of speech at once would take three times the memory of its segments.
    """
    if found is None:
        return
    recording, video = recording_in(sample), video_in(sample)
    for number, segment in enumerate(found.segments):
        derived: dict[str, Any] = {"key": sample.key, "segment": number}
        if recording is not None:
            field, facts, problem = recording.cut(segment.times, NOTE)
            derived |= facts
            yield ViewFile(segment_name(number, WAV), field, number)
        else:
            problem = _why_no_wav(sample, found.rule)
        if video is not None:
            piece = video_piece(video, recording, segment.times, NOTE if problem else "")
            yield ViewFile(segment_name(number, MP4), piece, number)
        if problem:
            derived["problem"] = problem
        yield ViewFile.text(segment_name(number, JSON), found.field, _json(segment.fields, derived), number)
        for version, text in segment.texts.items():
            if not version or is_version(version):
                yield ViewFile.text(segment_name(number, text_ending(version)), found.field, text, number)


def _why_no_wav(sample: StoredSample, rule: str) -> str:
    """The reason why the segments of a sample without a recording that can be cut have no `.wav`."""
    for field in sample.fields.values():
        if is_recording(field.extension):
            return field.note or f"no parts can be cut out of its recording, .{field.extension}"
    return "the cut has no recording" if rule == _CUTS else "the sample has no recording"


@lru_cache
def is_version(name: str) -> bool:
    """True if a text's version can have this name: it must fit into a file name, and its quoted form must be unique."""
    try:
        name.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return name != "" and len(text_ending(name)[: -len(TEXT) - 1].encode()) <= VERSION_MAX


@lru_cache
def text_ending(version: str) -> str:
    return quote(f"{version}.{TEXT}").decode() if version else TEXT


@lru_cache(40_000)
def segment_name(number: int, ending: str) -> str:
    return f"{number:04d}.{ending}"


def segment_ending(name: bytes) -> str:
    return name.partition(b".")[2].decode("utf-8", "surrogateescape")


def rows_of_segments(
    table: Table, ordinal: int, first: int = 0, stop: int | None = None, step: int = 1
) -> dict[int, dict[str, int]]:
    """The rows of the files of a sample's segments, by the number of the segment and the ending of the file; of those
    from `first` on and before `stop`, each `step`th one.
    """
    rows: dict[int, dict[str, int]] = {}
    for row in table.files_of_parts(ordinal, first, stop, step):
        rows.setdefault(table.part[row], {})[segment_ending(table.name(row))] = row
    return rows


def _json(fields: dict[str, Any], derived: dict[str, Any]) -> str:
    try:
        return _encode(fields | {"touchfs": derived}) + "\n"
    except RecursionError:  # writing a nested object takes more stack than reading it
        derived = derived | {"problem": "the segment as stored is nested too deep to be repeated here"}
        return _encode({"touchfs": derived}) + "\n"
