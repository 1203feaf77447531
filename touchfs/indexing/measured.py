"""Lengths of recordings that no header has, found while a shard is indexed: what `touchfs index --full` adds.

A recording that cannot be decoded becomes a field with a note, so that it is not read again by each `--full`. One that
cannot be read now, takes too long, or needs a decoder that is not installed stays unmeasured: the next time may differ.
"""

from __future__ import annotations

from dataclasses import replace

from touchfs.errors import FormatError, MissingExtraError, SourceError
from touchfs.media.duration import AudioInfo
from touchfs.sample import StoredRecording, StoredSample, UnmeasuredRecording, recording_in
from touchfs.shard.contents import FieldContents

# Without details, because a catalog has only a limited number of kinds of file.
_NOTE = "its recording cannot be decoded: ERROR.txt of its shard says why"


def measure(sample: StoredSample, contents: FieldContents) -> tuple[StoredSample, str]:
    """The sample with the rate and length of its recording, and a problem, "" if there is none.

    Raises ChangedError.
    """
    recording = recording_in(sample)
    if not isinstance(recording, UnmeasuredRecording):
        return sample, ""
    field = recording.field
    try:
        info = contents.info(field)
    except (SourceError, MissingExtraError) as error:
        return sample, f"the length of its recording is not known: {error.message}"
    except FormatError as error:
        fields = {**sample.fields, field.name: replace(field, note=_NOTE)}
        return replace(sample, fields=fields, recording=None), f"its recording cannot be decoded: {error.message}"
    start = info.offset if info.is_plain_pcm else 0
    audio = AudioInfo(info.rate, info.channels, info.frames, info.default_format, start)
    return replace(sample, recording=StoredRecording.measured(field, audio)), ""
