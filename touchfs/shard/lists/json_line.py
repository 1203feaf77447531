"""A line of JSON that names audio: its file, and the segment that the line is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from touchfs.manifest.json_lines import parse_reference
from touchfs.sample import Field, Recording, SampleSegments
from touchfs.shard.lists.audio import FIELD, AudioRoot
from touchfs.shard.options import LINE_RULE

# Lhotse's recordings describe whole files, and nothing that is said in them.
_OF_RECORDINGS = "sources"


class LineAudio(NamedTuple):
    """The audio of a line as a field, the recording in it, and the segment that the line is."""

    fields: Mapping[str, Field]
    recording: Recording | None
    segments: SampleSegments | None


NO_AUDIO = LineAudio({}, None, None)


def audio_path(parsed: Mapping[str, Any]) -> str | None:
    """The path of the audio that the object of a line names, as it is written there. Raises FormatError."""
    reference = parse_reference(parsed)
    return None if reference is None else reference.path


def find_audio(line: Field, parsed: Mapping[str, Any], root: AudioRoot) -> LineAudio:
    """The audio that the object of a line names. Raises FormatError if it cannot be shown."""
    reference = parse_reference(parsed)
    if reference is None or reference.path is None:
        return NO_AUDIO
    field, recording = root.find(reference.path)
    is_segment = _OF_RECORDINGS not in parsed
    segments = SampleSegments(line, LINE_RULE, (reference.segment,)) if is_segment else None
    return LineAudio({FIELD: field}, recording, segments)
