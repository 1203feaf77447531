"""A sample as all targets of a conversion get it: a key, and the bytes of its files by extension, as in the tree.

These files are understood: the recording, by its extension; `json`, which is TouchNet's metainfo or a cut of Lhotse's;
`txt`, the whole transcript, which may also be in the metainfo; and named values, `NAME.txt` or `NAME.json`. All
files of a row with a directory have names: `plain_names` says which of them are the recording and the JSON.

A cut that was made from metainfo has it in its "custom", under a name of ours. Lhotse looks for manifests in the
objects of "custom", but only one level deep, so the metainfo below stays unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import inf, isfinite, nextafter
from typing import Any

from touchfs.containers.shar.write.manifests import is_array, is_recording
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.core.json_text import parse_json
from touchfs.core.names import ROW_JSON, is_overlay_row, shown_extension
from touchfs.form.compressed_content import plain_extension
from touchfs.format.lhotse import Supervision, parse_cut, parse_recording
from touchfs.format.metainfo import TouchNetSegment, parse_metainfo, parse_object, shown_time
from touchfs.limits import LIMITS, too_long
from touchfs.media.extensions import AUDIO, coding_of

JSON, TEXT = "json", "txt"
OWN = "touchfs"  # our name in the "custom" of a cut
# Fields with the same name in segments and supervisions. Lhotse requires strings.
_SHARED = ("language", "speaker", "gender")


@dataclass(frozen=True, slots=True)
class ParsedSample:
    """The parsed text files of a sample. `stored` is the JSON as it was read, b"" if there is none."""

    fields: dict[str, Any]
    stored: Buffer
    text: str | None
    values: dict[str, Any]

    @classmethod
    def of(cls, files: Mapping[str, Buffer], limit: int = LIMITS.json) -> ParsedSample:
        """Parse the files of a sample.

        Raises FormatError for a file over `limit` bytes, and for contradicting texts.
        """
        for extension, data in files.items():
            if (extension in (JSON, TEXT) or is_value(extension)) and len(data) > limit:
                raise FormatError(too_long(f"its .{extension}", limit))
        stored = files.get(JSON, b"")
        fields = parse_object(stored) if JSON in files else {}
        text = _decode(TEXT, files[TEXT]) if TEXT in files else None
        named = [
            (extension, *extension.rsplit(".", 1))
            for extension in files
            if is_value(extension) and not is_overlay_row(extension)
        ]
        rows = [_parse(extension, files[extension]) for extension in files if is_overlay_row(extension)]
        stored_values = {name: _VALUES[kind](extension, files[extension]) for extension, name, kind in named}
        values = _with_columns(stored_values, rows, fields)
        if is_cut(fields):
            return cls(fields, stored, parse_cut(fields).text if text is None else text, values)
        known = parse_metainfo(stored).text if JSON in files else None
        if None not in (text, known) and text != known:
            raise FormatError(
                "its .txt and its .json contain different texts: leave one out with --leave-out txt or json"
            )
        return cls(fields, stored, text if known is None else known, values)

    @property
    def is_cut(self) -> bool:
        """True if the JSON is a cut of Lhotse's."""
        return is_cut(self.fields)


def _with_columns(values: dict[str, Any], rows: Sequence[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Named values with the columns of overlays, whose `rows` are. What is stored counts before these: `fields` of the
    JSON, and values, unless one is only the text of a column.
    """
    found: dict[str, Any] = {}
    for row in rows:
        found = {**_object(row), **found}
    columns = {name: value for name, value in found.items() if name not in fields}
    texts = dict[str, str]()
    for name, value in found.items():
        text = value if isinstance(value, str) else json.dumps(value)
        texts[shown_extension(f"{name}.{TEXT}").removesuffix(f".{TEXT}")] = text.removesuffix("\n")
    return columns | {name: value for name, value in values.items() if value != texts.get(name)}


def is_value(extension: str) -> bool:
    """True if a file of this extension is a named value."""
    name, _, kind = extension.rpartition(".")
    return name != "" and kind in _VALUES


def is_cut(fields: Mapping[str, Any]) -> bool:
    """True if a JSON object is a cut of Lhotse's."""
    return "id" in fields and isinstance(fields.get("supervisions"), list)


def same_names(extensions: Collection[str]) -> Mapping[str, str]:
    """No new extensions: files keep theirs."""
    return {}


def plain_names(extensions: Collection[str]) -> Mapping[str, str]:
    """New extensions for files of a sample. Compressed JSON and text become plain. Of a sample without `json`,
    `row.json` is its JSON, and the only `NAME.wav` or the like its recording.
    """
    names: dict[str, str] = {}
    for extension in extensions:
        plain = plain_extension(extension)
        if (plain in (JSON, TEXT) or is_value(plain)) and plain not in (*extensions, *names.values()):
            names[extension] = plain
    if JSON in extensions or JSON in names.values():
        return names
    if ROW_JSON in extensions:
        names[ROW_JSON] = JSON
    found = [extension for extension in extensions if coding_of(extension) in AUDIO]
    return names | {found[0]: coding_of(found[0])} if len(found) == 1 else names


def recording_in(files: Mapping[str, Buffer]) -> str | None:
    """The extension of the recording, or None. Raises FormatError if there are several."""
    found = [extension for extension in files if extension.lower() in AUDIO]
    if len(found) > 1:
        raise FormatError(f"has recordings in {' and '.join(found)}: leave one out with --leave-out {found[1]}")
    return found[0] if found else None


def segments(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The segments of metainfo that are objects."""
    found = _object(fields.get("info")).get("segments")
    return [segment for segment in found if isinstance(segment, dict)] if isinstance(found, list) else []


def to_supervisions(
    key: str,
    fields: Mapping[str, Any],
    text: str | None,
    rate: int | None,
    duration: float,
    channel: int | list[int],
) -> list[dict[str, Any]]:
    """Lhotse's supervisions from metainfo: one a segment; without segments, one over the whole text. Times in seconds.

    They have the same samples as the segments at the recording's rate in Hz; None does not look at it.

    Raises FormatError for a segment without a valid time span.
    """
    found = segments(fields)
    if not found and text is not None and duration > 0:
        found = [{"start": 0, "end": duration, "txt": text}]
    return [_to_supervision(key, number, each, rate, duration, channel) for number, each in enumerate(found)]


def _to_supervision(
    key: str, number: int, fields: dict[str, Any], rate: int | None, duration: float, channel: int | list[int]
) -> dict[str, Any]:
    segment = TouchNetSegment.of(fields)
    start, end = _seconds(number, segment.start), _seconds(number, segment.end)
    if end == -1:
        end = _decimal(duration)
    if start < 0:
        raise FormatError(f"segment {number} begins at {start} s, before its recording does")
    if not start < end:
        raise FormatError(f"segment {number} from {start} to {end} s is empty, and Lhotse has no empty ones")
    supervision = {
        "id": f"{key}-{number:04d}",
        "recording_id": key,
        **_times(segment, float(start), float(end - start), rate, duration),
        "channel": channel,
    }
    if segment.text is not None:
        supervision["text"] = segment.text
    shared = {name: fields[name] for name in _SHARED if isinstance(fields.get(name), str)}
    used = {"start", "end", "txt" if isinstance(fields.get("txt"), str) else "text", *shared}
    rest = {name: value for name, value in fields.items() if name not in used}
    return supervision | shared | ({"custom": rest} if rest else {})


def _times(segment: TouchNetSegment, start: float, duration: float, rate: int | None, whole: float) -> dict[str, float]:
    """Start and duration of a supervision. TouchNet truncates times and Lhotse rounds them: if that makes a difference,
    they are those of the samples that TouchNet has.
    """
    times = {"start": start, "duration": duration}
    if rate is not None:
        length = round(whole * rate)
        first, count, _ = segment.span(rate, length)
        if count and Supervision(None, times, (0, whole)).span(rate, length)[:2] != (first, count):
            return {"start": first / rate, "duration": count / rate}
    return times


def to_metainfo(key: str, cut: Mapping[str, Any], text: str | None) -> dict[str, Any]:
    """TouchNet's metainfo from a cut. If the cut was made from metainfo and still agrees with it, that metainfo."""
    custom = _object(cut.get("custom"))
    known = _object(custom.get(OWN)).get("metainfo")
    if not isinstance(known, dict):
        known = {name: value for name, value in custom.items() if not is_recording(value) and not is_array(value)}
        known.pop(OWN, None)
    elif cut["supervisions"] == _supervisions_of(cut, known):
        return known
    found = [_to_segment(each, cut) for each in cut["supervisions"] if isinstance(each, dict)]
    transcript = {} if text is None else {"txt": text}
    return {**known, "key": key, **transcript, "info": {**_object(known.get("info")), "segments": found}}


def _supervisions_of(cut: Mapping[str, Any], metainfo: Mapping[str, Any]) -> object:
    recording = parse_recording(_object(cut.get("recording")))
    rate = None if recording is None else recording[0]
    text = parse_metainfo(json.dumps(metainfo).encode()).text
    try:
        return to_supervisions(cut["id"], metainfo, text, rate, cut.get("duration", 0), cut.get("channel", 0))
    except FormatError:
        return None


def _to_segment(supervision: dict[str, Any], cut: Mapping[str, Any]) -> dict[str, Any]:
    start = _decimal(supervision.get("start")) + _decimal(cut.get("start", 0))
    end = start + _decimal(supervision.get("duration"))
    times = {"start": float(start), "end": float(end)}
    if (recording := parse_recording(_object(cut.get("recording")))) is not None:
        rate, _, length = recording
        window = cut.get("start", 0), cut.get("duration")
        first, count, _ = Supervision(None, supervision, window).span(rate, length)
        if count and TouchNetSegment.of(times).span(rate, length)[:2] != (first, count):
            times = {"start": time_of(first, rate), "end": time_of(first + count, rate)}
    text = {"txt": supervision["text"]} if isinstance(supervision.get("text"), str) else {}
    shared = {name: supervision[name] for name in _SHARED if name in supervision}
    return {**times, **text, **shared, **_object(supervision.get("custom"))}


def time_of(sample: int, rate: int) -> float:
    """The time in seconds that TouchNet, which truncates, takes for this sample."""
    seconds = sample / rate
    return seconds if int(seconds * rate) == sample else nextafter(seconds, inf)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _seconds(number: int, value: object) -> Decimal:
    try:
        return _decimal(value)
    except FormatError as error:
        raise FormatError(f"segment {number}: {error}") from error


def _decimal(value: object) -> Decimal:
    """A time as an exact decimal, so that 0.3 - 0.1 is 0.2. Raises FormatError for other values."""
    try:
        found = Decimal(str(value)) if type(value) in (int, float, str) else Decimal("NaN")
    except InvalidOperation:
        found = Decimal("NaN")
    if not isfinite(float(found)):
        raise FormatError(f"{shown_time(value)} is not a time")
    return found


def _decode(extension: str, data: Buffer) -> str:
    try:
        return str(data, "utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise FormatError(f"its .{extension} is not UTF-8: {error.reason}", offset=error.start) from error


def _parse(extension: str, data: Buffer) -> Any:
    try:
        return parse_json(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"its .{extension} is not JSON: {error}") from error


_VALUES = {TEXT: _decode, JSON: _parse}
