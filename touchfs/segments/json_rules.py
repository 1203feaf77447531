"""Segments in the JSON of a sample. The table is in the docstring of `touchfs.segments`.

A rule finds a list. Its entries that are objects are the segments; other entries are left out. An entry without valid
times is a segment without samples, and `span` gives the reason. A list is absent if it is empty, or if none of its
entries has a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from touchfs.core.errors import FormatError, UsageError
from touchfs.format.lhotse import parse_cut
from touchfs.format.metainfo import TouchNetSegment
from touchfs.segments.segment import SEGMENTS_MAX, STORED_LABELS, Segment, Segments, Spanned
from touchfs.segments.times import Times

# Names of the start, the end and the duration. In each, the first name that has a value counts.
_SECONDS = ("start", "start_time", "begin", "begin_time", "offset"), ("end", "end_time", "stop"), ("duration", "dur")
_SAMPLES = ("start_sample", "start_samples", "offset_samples"), ("end_sample", "end_samples"), ("num_samples",)

# A field that AssemblyAI's JSON has, whose times are in milliseconds.
_ASSEMBLY_AI = "audio_url"
# No longer float, or no time: kept, so that the span says so.
_MILLISECONDS_MAX = 2**53

TIME_FIELDS = frozenset(name for names in (*_SECONDS, *_SAMPLES, ("timestamp",)) for name in names)


def segments_of_json(value: Any, rule: str | None = None) -> Segments | None:
    """Return the segments in the decoded JSON of a sample, by the first rule that finds some, or by the named one.

    Returns None if there are none. Raises UsageError if no rule has this name, and FormatError if there are more than
    `SEGMENTS_MAX`.
    """
    if rule is not None and rule not in JSON_RULES:
        raise UsageError(f"no rule for segments in JSON is called {rule!r}: there are {', '.join(JSON_RULES)}")
    if isinstance(value, list):
        value = {"segments": value}
    if not isinstance(value, dict) or MEMBERS.isdisjoint(value):
        return None
    for name in JSON_RULES if rule is None else (rule,):
        segments = JSON_RULES[name](value)
        if segments:
            return Segments(name, tuple(segments))
    return None


def _touchnet(sample: Mapping[str, Any]) -> list[Segment]:
    info = sample.get("info")
    entries = _objects("info.segments", info.get("segments") if isinstance(info, dict) else None)
    return [_stored(segment, segment.fields, segment.text) for segment in map(TouchNetSegment.of, entries)]


def _supervisions(sample: Mapping[str, Any]) -> list[Segment]:
    _objects("supervisions", sample.get("supervisions"))  # how many there are
    return [_stored(each, each.fields, each.text) for each in parse_cut(sample).supervisions]


def _stored(times: Spanned, fields: dict[str, Any], text: str | None) -> Segment:
    return Segment(times, fields, text, "txt" if isinstance(fields.get("txt"), str) else "text", STORED_LABELS)


def _alignment(sample: Mapping[str, Any]) -> list[Segment]:
    """A list, or an object of lists by unit, of which the words count. Lhotse's entries are `[symbol, start, duration,
    score]`.
    """
    lists = sample.get("alignment")
    if isinstance(lists, dict):
        lists = lists.get("word", lists.get("words"))
    if isinstance(lists, list):
        names = "text", "start", "duration", "score"
        lists = [dict(zip(names, each, strict=False)) if _is_item(each) else each for each in lists]
    return _timed("alignment", lists)


def _is_item(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) in (3, 4) and isinstance(entry[0], str)


def _list(*paths: str) -> Callable[[Mapping[str, Any]], list[Segment]]:
    """The rule that takes the first list with times at one of these paths."""

    def rule(sample: Mapping[str, Any]) -> list[Segment]:
        return next(filter(None, (_timed(path, _at(sample, path)) for path in paths)), [])

    return rule


def _at(value: Any, path: str) -> Any:
    """What is at a path of names and numbers, as `channels.0.words`; None if nothing is."""
    for name in path.split("."):
        if isinstance(value, list) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _whisper_cpp(sample: Mapping[str, Any]) -> list[Segment]:
    entries = [(each, each.get("offsets")) for each in _objects("transcription", sample.get("transcription"))]
    return [_in_milliseconds(each, times, "from", "to") for each, times in entries if isinstance(times, dict)]


def _assembly_ai(sample: Mapping[str, Any]) -> list[Segment]:
    if _ASSEMBLY_AI not in sample:
        return []
    found = _objects("utterances", sample.get("utterances")) or _objects("words", sample.get("words"))
    return [_in_milliseconds(each, each, "start", "end") for each in found]


def _in_milliseconds(entry: dict[str, Any], times: Mapping[str, Any], *names: str) -> Segment:
    start, end = (_seconds(times.get(name)) for name in names)
    return Segment.timed(Times(start, end), entry)


def _seconds(milliseconds: Any) -> Any:
    """A time in seconds; what is not a number as it is."""
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return milliseconds / 1000 if is_number and abs(milliseconds) < _MILLISECONDS_MAX else milliseconds


def _timed(name: str, entries: object) -> list[Segment]:
    """The segments of a list; none if no entry has a time."""
    found = [(each, times_of(each)) for each in _objects(name, entries)]
    if not any(times for _, times in found):
        return []
    return [Segment.timed(times or Times(None), each) for each, times in found]


def _objects(name: str, entries: object) -> list[dict[str, Any]]:
    if not isinstance(entries, list):
        return []
    if len(entries) > SEGMENTS_MAX:
        raise FormatError(f"{name} has {len(entries):,} entries, more than {SEGMENTS_MAX:,}: split the recording")
    return [each for each in entries if isinstance(each, dict)]


def times_of(fields: Mapping[str, Any]) -> Times | None:
    """Return the times that an object has under any of the names; None if it has no start."""
    pair = fields.get("timestamp")
    if isinstance(pair, list) and len(pair) == 2:
        return Times(*pair)
    for names, in_samples in ((_SAMPLES, True), (_SECONDS, False)):
        start, end, duration = (_first(fields, each, in_samples) for each in names)
        if start is not None:
            return Times(start, end, duration, in_samples)
    return None


def _first(fields: Mapping[str, Any], names: tuple[str, ...], in_samples: bool) -> Any:
    for name in names:
        value = fields.get(name)
        if type(value) is int if in_samples else value is not None:
            return value
    return None


# By name, in the order in which they are tried.
JSON_RULES: dict[str, Callable[[Mapping[str, Any]], list[Segment]]] = {
    "info.segments": _touchnet,
    "segments": _list("segments"),
    "supervisions": _supervisions,
    "alignment": _alignment,
    "utterances": _assembly_ai,
    "words": _list("words"),
    "chunks": _list("chunks"),
    "transcription": _whisper_cpp,
    "timestamp": _list("timestamp.segment", "timestamp.word"),
    "results": _list("results.utterances", "results.audio_segments", "results.channels.0.alternatives.0.words"),
}
# The members of an object in which the rules look.
MEMBERS = frozenset(name.partition(".")[0] for name in JSON_RULES)
