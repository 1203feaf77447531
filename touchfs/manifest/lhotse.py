"""Lhotse's manifests: a JSON object per line, which is a recording, a supervision or a cut.

    {"id": "monday", "sources": [{"type": "file", "channels": [0], "source": "talks/monday.wav"}],
     "sampling_rate": 16000, "num_samples": 152000, "duration": 9.5, "channel_ids": [0]}
    {"id": "monday-0000", "recording_id": "monday", "start": 1.5, "duration": 2.0, "channel": 0, "text": "Good…"}
    {"id": "monday", "start": 0, "duration": 9.5, "channel": 0, "type": "MonoCut",
     "recording": {…}, "supervisions": [{…}]}

The supervisions of a cut, whose times are relative to it, are found by `segments.json_rules`. Cuts that mix or pad
others point to no one file.
Source: lhotse/audio/recording.py, lhotse/supervision.py, lhotse/cut/mono.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.format.lhotse import Supervision, parse_cut
from touchfs.manifest.entry import ListedRecording, Utterance, one_line, seconds
from touchfs.manifest.reference import Reference, checked_path
from touchfs.segments.formats.lines import shown
from touchfs.segments.segment import STORED_LABELS, Segment, label_of
from touchfs.segments.times import Times

_PATHS = ("file", "url")


def build_recording(recording: ListedRecording) -> str:
    return json.dumps(_recording(recording)) + "\n"


def build_supervision(utterance: Utterance) -> str:
    return json.dumps(_supervision(utterance)) + "\n"


def build_cut(recording: ListedRecording, utterances: Sequence[Utterance]) -> str:
    """Return the line of a cut: a whole recording with all its utterances."""
    channels = list(range(recording.channels))
    cut = {
        "id": recording.id,
        "start": 0,
        "duration": seconds(recording.length, recording.rate),
        "channel": channels if len(channels) > 1 else 0,
        "supervisions": [_supervision(each) for each in utterances],
        "recording": _recording(recording),
        "type": "MultiCut" if len(channels) > 1 else "MonoCut",
    }
    return json.dumps(cut) + "\n"


def _recording(recording: ListedRecording) -> dict[str, Any]:
    channels = list(range(recording.channels))
    return {
        "id": recording.id,
        "sources": [{"type": "file", "channels": channels, "source": recording.path}],
        "sampling_rate": recording.rate,
        "num_samples": recording.length,
        "duration": seconds(recording.length, recording.rate),
        "channel_ids": channels,
    }


def _supervision(utterance: Utterance) -> dict[str, Any]:
    channels = list(range(utterance.recording.channels))
    text = None if utterance.text is None else one_line(utterance.text)
    labels = {"text": text, "language": utterance.language, "speaker": utterance.speaker}
    return {
        "id": utterance.id,
        "recording_id": utterance.recording.id,
        "start": seconds(utterance.offset, utterance.recording.rate),
        "duration": seconds(utterance.length, utterance.recording.rate),
        "channel": channels if len(channels) > 1 else 0,
        **{name: value for name, value in labels.items() if value is not None},
    }


def parse_lhotse(fields: Mapping[str, Any]) -> Reference:
    """Return the reference of a line's object. Raises FormatError."""
    stored = dict(fields)
    if "sources" in fields:
        return Reference(_path(fields), label_of(fields, ("id",)), Segment(Times(0), stored, None))
    if "recording_id" in fields:
        text = fields.get("text")
        supervision = Supervision(text if isinstance(text, str) else None, stored, (None, None))
        segment = Segment(supervision, stored, supervision.text, labels=STORED_LABELS)
        return Reference(None, label_of(fields, ("recording_id",)), segment)
    recording = fields.get("recording")
    if not isinstance(recording, dict):
        raise FormatError(f"a cut of the type {shown(str(fields.get('type'))[:80])} points to no recording")
    # A cut is cut from its recording as a supervision is from a cut that is the whole recording.
    times = Supervision(None, stored, (None, None))
    segment = Segment(times, stored, parse_cut(fields).text, labels=STORED_LABELS)
    return Reference(_path(recording), label_of(recording, ("id",)), segment)


def _path(recording: Mapping[str, Any]) -> str:
    """The path of a recording with one source. Raises FormatError for several, which are merged, and for others."""
    sources = recording.get("sources")
    if not isinstance(sources, list) or len(sources) != 1 or not isinstance(sources[0], dict):
        raise FormatError("a recording has no single source: store its channels in one file")
    kind = sources[0].get("type")
    if kind == "command":
        raise FormatError("the source of a recording is a command, and commands are never run: name a file")
    if kind not in _PATHS:
        raise FormatError(f"the source of a recording is of the type {shown(str(kind)[:80])}, not a file")
    return checked_path(sources[0].get("source"))
