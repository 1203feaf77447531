"""Lengths of recordings that no header has, found while a shard is indexed: what `touchfs index --full` adds.

A video without sound is no recording: segments of it have no WAV files.

A recording that cannot be decoded becomes a field with a note, so that it is not read again by each `--full`. One that
cannot be read now, takes too long, or needs a decoder that is not installed stays unmeasured: the next time may differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from touchfs.core.errors import FormatError, MissingExtraError, SourceError
from touchfs.core.extent import drive
from touchfs.form.recordings import can_cut
from touchfs.media.coding import mp4_sound
from touchfs.media.duration import AudioInfo
from touchfs.media.extensions import coding_of, preference
from touchfs.registry.contents import FieldContents
from touchfs.shard.sample import Field, StoredRecording, StoredSample, UnmeasuredRecording, recording_in

# Without details, because a catalog has only a limited number of kinds of file.
_NOTE = "its recording cannot be decoded: ERROR.txt of its shard says why"
_NO_SOUND = "it has no sound"


class Measurement(NamedTuple):
    """The format and length of a recording; None if it has none, which the note says, or if they are not known yet.

    A `problem` is for the user.
    """

    audio: AudioInfo | None = None
    note: str = ""
    problem: str = ""


def without_silent_videos(sample: StoredSample, contents: FieldContents) -> StoredSample:
    """The sample with another recording, or none, if its recording is an MP4 or QuickTime video without sound.

    Reads the headers of such videos in the shard. Raises the errors of sources.
    """
    fields = dict(sample.fields)
    recording = recording_in(sample)
    while isinstance(recording, UnmeasuredRecording) and _is_silent(recording.field, contents):
        name = recording.field.name
        fields[name] = replace(fields[name], note=_NO_SOUND)
        recording = UnmeasuredRecording.first(field for field in fields.values() if field.note != _NO_SOUND)
    return replace(sample, fields=fields, recording=recording) if fields != sample.fields else sample


def _is_silent(field: Field, contents: FieldContents) -> bool:
    form = field.form
    if not (form.is_stored and form.reads_shard) or coding_of(field.extension) not in mp4_sound.EXTENSIONS:
        return False
    content = contents.content(field)
    return drive(mp4_sound.is_silent(content.size), content)


def measure(sample: StoredSample, contents: FieldContents) -> tuple[StoredSample, str]:
    """The sample with the rate and length of its recording, and a problem, "" if there is none.

    Raises ChangedError.
    """
    recording = recording_in(sample)
    if not isinstance(recording, UnmeasuredRecording):
        return sample, ""
    field = recording.field
    found = _measured(field, contents)
    if found.audio is not None:
        return replace(sample, recording=StoredRecording.measured(field, found.audio)), ""
    if not found.note:
        return sample, found.problem
    fields = {**sample.fields, field.name: replace(field, note=found.note)}
    return replace(sample, fields=fields, recording=None), found.problem


def recordings_of(fields: Iterable[Field]) -> list[Field]:
    """The fields that are recordings and can be cut, wherever their bytes are, in the order of `recordings_among`."""
    found = [field for field in fields if can_cut(field.form, field.extension)]
    return sorted(found, key=lambda field: preference(field.extension))


def measure_field(field: Field, contents: FieldContents) -> Measurement:
    """Measure the recording in a field. Raises ChangedError."""
    with suppress(SourceError, FormatError):  # which `_measured` meets, too
        if _is_silent(field, contents):
            return Measurement(note=_NO_SOUND)
    return _measured(field, contents)


def _measured(field: Field, contents: FieldContents) -> Measurement:
    try:
        info = contents.info(field)
    except (SourceError, MissingExtraError) as error:
        return Measurement(problem=f"the length of its recording is not known: {error.message}")
    except FormatError as error:
        return Measurement(note=_NOTE, problem=f"its recording cannot be decoded: {error.message}")
    start = info.offset if info.is_plain_pcm else 0
    return Measurement(AudioInfo(info.rate, info.channels, info.frames, info.default_format, start))
