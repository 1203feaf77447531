"""Segments that other formats cannot express become `info.segments` of a sample's JSON, or supervisions of its cut.

A segment keeps the samples that it has in the tree: its times are computed from them. Its texts are `txt` and `txts`,
and all other fields are in `custom`. Segments that are `info.segments` or supervisions already stay as they are. The
file beside a recording from which segments were taken is left out, as its content is in the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from touchfs.bulk.convert.sample import JSON, is_cut, time_of, to_supervisions
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.format.metainfo import parse_object
from touchfs.segments.json_rules import TIME_FIELDS
from touchfs.segments.segment import TEXT_OBJECTS, Segment
from touchfs.segments.sidecar import FILE_RULES
from touchfs.shard.options import LINE_RULE
from touchfs.shard.sample import SampleSegments, StoredRecording

_OWN_RULES = ("info.segments", "supervisions")


def with_segments(
    key: str,
    files: Mapping[str, Buffer],
    extension: str | None,
    found: SampleSegments,
    find_recording: Callable[[], StoredRecording | None],
    listed: SampleSegments | None = None,
) -> dict[str, Buffer]:
    """The files of a sample with its segments in its JSON. `extension` is that of the file that has them now, None if
    it was left out. `find_recording` is called if the length of the recording must be known. `listed` are the segments
    of the list that names the sample (`StoredSample.listed`).

    A cut that is a piece of its recording becomes a cut of the whole. Raises FormatError if the segments cannot be
    stored.
    """
    is_own = extension == JSON and found.rule in _OWN_RULES
    if is_own and (listed is None or not is_cut(parse_object(files[JSON]))):
        return dict(files)
    recording = find_recording()
    is_piece = recording is not None and _is_piece(listed, recording)
    if is_own and not is_piece:
        return dict(files)
    if recording is None:
        if extension == JSON:
            return dict(files)
        raise FormatError(
            f"the length of its recording is not known, so segments of its {found.field.name} cannot be stored: "
            "--segments none ignores them"
        )
    fields = parse_object(files[JSON]) if JSON in files else {}
    entries = [_entry(segment, recording.rate, recording.length) for segment in found.segments]
    if found.rule == LINE_RULE:
        for entry in entries:
            entry.pop("custom", None)  # the other fields of the line, which the JSON has
    if is_cut(fields):
        duration, channel = recording.length / recording.rate, fields.get("channel", 0)
        fields["supervisions"] = to_supervisions(key, _info(entries), None, recording.rate, duration, channel)
        if is_piece:
            fields |= {"start": 0, "duration": duration}
    else:
        info = fields.get("info")
        fields |= _info(entries, info if isinstance(info, dict) else {})
    kept = {name: data for name, data in files.items() if found.rule not in FILE_RULES or name != extension}
    try:
        return kept | {JSON: json.dumps(fields, ensure_ascii=False).encode()}
    except (ValueError, RecursionError) as error:
        raise FormatError(f"its segments cannot be written as JSON: {error}") from error


def _is_piece(listed: SampleSegments | None, recording: StoredRecording) -> bool:
    """True if a list names only a piece of the recording."""
    if listed is None or listed.rule != LINE_RULE:
        return False
    return listed.segments[0].span(recording.rate, recording.length)[:2] != (0, recording.length)


def _info(entries: list[dict[str, Any]], others: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"info": {**(others or {}), "segments": entries}}


def _entry(segment: Segment, rate: int, length: int) -> dict[str, Any]:
    """A segment as TouchNet's. An empty one has equal times."""
    first, count, _ = segment.span(rate, length)
    texts = segment.texts
    default = texts.pop("", None)
    labels = {"speaker": segment.speaker, "language": segment.language}
    custom = {
        name: value
        for name, value in segment.fields.items()
        if name not in TIME_FIELDS and name != segment.text_field and not _is_version(segment, name, value)
    }
    return {
        "start": time_of(first, rate),
        "end": time_of(first + count, rate),
        **({} if default is None else {"txt": default}),
        **({"txts": texts} if texts else {}),
        **{name: value for name, value in labels.items() if value is not None},
        **({"custom": custom} if custom else {}),
    }


def _is_version(segment: Segment, name: str, value: object) -> bool:
    """True if a field is one more text, or an object of texts."""
    return (isinstance(value, str) and name not in segment.labels) or (isinstance(value, dict) and name in TEXT_OBJECTS)
