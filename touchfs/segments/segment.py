"""A segment: a piece of a recording with a text, as every format gives it.

A segment keeps the object that its file or JSON stores, `fields`. A format without objects, such as SubRip, makes one
with these names: `start`, `end` or `duration` in seconds, `text`, `speaker`, `language`, `channel`, `recording_id`,
`id`. So a segment's `.json` looks alike whatever it comes from, and all labels are computed from `fields`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from touchfs.segments.times import Times

# A day of speech has about 250,000 words. As an object a segment takes about 500 bytes of memory.
SEGMENTS_MAX = 2**18

# The last ones are those of FLEURS, Common Voice, VoxPopuli, GigaSpeech and NeMo's time stamps.
TEXT_FIELDS = (
    "text",
    "txt",
    "transcript",
    "word",
    "transcription",
    "sentence",
    "normalized_text",
    "raw_text",
    "text_tn",
    "segment",
)
# String fields of TouchNet's and Lhotse's segments that are no texts.
STORED_LABELS = frozenset(
    {"start", "end", "id", "key", "recording_id", "speaker", "gender", "language", "lang", "type"}
)
# The same for all others.
LABELS = STORED_LABELS | {
    *("start_time", "end_time", "begin_time", "begin", "stop", "offset", "duration", "dur", "timestamp", "confidence"),
    *("speaker_id", "spk", "spk_id", "speaker_label", "channel", "track", "tier", "sid", "uid", "utt", "utt_id"),
    *("segment_id", "utterance_id", "audio_filepath", "audio", "wav", "file", "file_name", "path", "uri", "role"),
}
_SPEAKERS = ("speaker", "speaker_id", "spk", "spk_id", "speaker_label")
_LANGUAGES = ("language", "lang")
_CHANNELS = ("channel",)
_RECORDINGS = ("recording_id",)
# Names of objects that map versions to texts.
TEXT_OBJECTS = ("txt", "text", "txts", "texts")


class Spanned(Protocol):
    """The times of a segment: `Times`, or a segment of TouchNet or Lhotse with their own rules of rounding."""

    def span(self, rate: int, length: int) -> tuple[int, int, str | None]:
        """Return `(offset, length, problem)` in samples, always inside a recording of `length` samples at `rate` Hz."""
        ...


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a recording. `text` is its default text, which the field `text_field` has; `labels` are the names of
    fields that are no texts.
    """

    times: Spanned
    fields: dict[str, Any]
    text: str | None
    text_field: str = "text"
    labels: frozenset[str] = LABELS

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Segment:
        """Return the segment of an object with the names of this module."""
        return cls.timed(Times(fields.get("start"), fields.get("end"), fields.get("duration")), fields)

    @classmethod
    def timed(cls, times: Times, fields: dict[str, Any]) -> Segment:
        """Return the segment of an object with these times. Its text is the first string of `TEXT_FIELDS`."""
        name = next((name for name in TEXT_FIELDS if isinstance(fields.get(name), str)), "text")
        text = fields.get(name)
        return cls(times, fields, text if isinstance(text, str) else None, name)

    def span(self, rate: int, length: int) -> tuple[int, int, str | None]:
        """Return `(offset, length, problem)` in samples, always inside a recording of `length` samples at `rate` Hz."""
        return self.times.span(rate, length)

    @property
    def texts(self) -> dict[str, str]:
        """The texts by version. The default text has the version "".

        The other versions are the string fields that are no labels, then the members of objects of texts, both also of
        the object `custom`, in which Lhotse keeps fields that it does not know. The first of a name counts.
        """
        versions = {} if self.text is None else {"": self.text}
        custom = self.fields.get("custom")
        others = custom if isinstance(custom, dict) else {}
        for fields, no_texts in ((self.fields, self.labels | {self.text_field}), (others, LABELS)):
            for name, text in fields.items():
                if isinstance(text, str) and name and name not in no_texts:
                    versions.setdefault(name, text)
        for texts in (fields.get(name) for fields in (self.fields, others) for name in TEXT_OBJECTS):
            for version, text in texts.items() if isinstance(texts, dict) else ():
                if isinstance(text, str) and version:
                    versions.setdefault(version, text)
        return versions

    @property
    def speaker(self) -> str | None:
        return label_of(self.fields, _SPEAKERS)

    @property
    def language(self) -> str | None:
        return label_of(self.fields, _LANGUAGES)

    @property
    def channel(self) -> str | None:
        """The channel as stored: NIST's formats count from 1 or A, Lhotse from 0."""
        return label_of(self.fields, _CHANNELS)

    @property
    def recording(self) -> str | None:
        """The name of the recording, in formats that describe several."""
        return label_of(self.fields, _RECORDINGS)


class Segments(NamedTuple):
    """The segments of a recording, in the order of their file, and the name of the rule that found them."""

    rule: str
    segments: Sequence[Segment]


def label_of(fields: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of these fields that is a string, not empty, or an integer."""
    for name in names:
        value = fields.get(name)
        if (isinstance(value, str) and value) or type(value) is int:
            return str(value)
    return None
