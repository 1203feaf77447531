"""The entries of lists: recordings and utterances with their ids, and their times in seconds.

An id is one word, so it is quoted: white space, control characters and `=` become `=XX`, the hexadecimal bytes of their
UTF-8. In a speaker's id all characters of ASCII up to `-` are quoted, too. So speakers sort alike with and without the
rest of an utterance's id after them, as Kaldi requires: utterances that are sorted by id are sorted by speaker.
"""

from __future__ import annotations

import re
from math import inf, nextafter
from typing import NamedTuple

from touchfs.core.control_characters import UNSAFE

_CONTROL = rf"\s{UNSAFE}\u200b\ufeff="
_QUOTED = re.compile(f"[{_CONTROL}]")
_QUOTED_IN_SPEAKER = re.compile(rf"[{_CONTROL}\x20-\x2d]")
# Characters that Python, Perl or awk take for white space or a line end.
_SPACES = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class ListedRecording(NamedTuple):
    """A recording: its id, the path of its audio, and `length` samples per channel at `rate` Hz."""

    id: str
    path: str
    rate: int
    channels: int
    length: int


class Utterance(NamedTuple):
    """A segment of a recording: `length` samples from `offset` on, with its labels as stored.

    `id` and `speaker_id` are those of `utterance_ids`.
    """

    id: str
    recording: ListedRecording
    offset: int
    length: int
    speaker_id: str
    text: str | None = None
    speaker: str | None = None
    language: str | None = None


def recording_id(key: str) -> str:
    """Return the id of the recording of a sample. Different keys have different ids."""
    return _quote(_QUOTED, key)


def speaker_id(speaker: str) -> str:
    """Return the id of a speaker. Different names have different ids."""
    return _quote(_QUOTED_IN_SPEAKER, speaker)


def utterance_ids(recording: str, number: int, speaker: str | None) -> tuple[str, str]:
    """Return the id of a segment, `[<speaker>-]<recording>-<segment>`, and the id of its speaker.

    `recording` is an id. Without a speaker, both are the same, as is the custom in Kaldi. Where only some segments of a
    data set have a speaker, pass the recording as the speaker of the others: only then are all in Kaldi's order.
    """
    name = f"{recording}-{number:04d}"
    if not speaker:
        return name, name
    return f"{speaker_id(speaker)}-{name}", speaker_id(speaker)


def seconds(samples: int, rate: int) -> float:
    """Return a time that is `samples` again for tools that round it to samples and for those that truncate it.

    It is `samples / rate`, or the next float above where that times the rate is less than `samples`.
    """
    time = samples / rate
    while int(time * rate) < samples:
        time = nextafter(time, inf)
    return time


def one_line(text: str | None) -> str:
    """Return a text with single spaces for its white space, none at its ends, and U+FFFD for lone surrogates."""
    words = " ".join(_SPACES.split(text or "")).strip()
    return words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _quote(quoted: re.Pattern[str], text: str) -> str:
    return quoted.sub(lambda match: "".join(f"={byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass")), text)
