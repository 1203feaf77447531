"""Kaldi's data directories: lists of lines that begin with an id, sorted as `LC_ALL=C sort` does.

    wav.scp    recording path            segments   utterance recording start end
    text       utterance words           utt2spk    utterance speaker        spk2utt   speaker utterance utterance …
    utt2dur    utterance seconds         reco2dur   recording seconds

The same ids must be in all files of utterances, and in all of recordings, and each duration be over 0: leave out
utterances without samples. A text may be empty. The words `<s>`, `</s>` and `#0`, which Kaldi forbids, are left out.

In a `wav.scp` that is read, the rest of a line is a path. A command (`sox … |`) is never run, and refused.
Source: Kaldi, egs/wsj/s5/utils/validate_data_dir.sh and validate_text.pl; src/util/kaldi-io.cc (ClassifyRxfilename).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.manifest.entry import ListedRecording, Utterance, one_line, seconds
from touchfs.manifest.reference import checked_path
from touchfs.segments.formats.lines import at_line, fields, shown
from touchfs.segments.formats.lines import seconds as seconds_of
from touchfs.segments.segment import Segment

# As `grep -w` finds them in validate_data_dir.sh, byte by byte.
_FORBIDDEN = re.compile(r"(?<!\w)(?:<s>|</s>|#0)+(?!\w)", re.ASCII)
# Kaldi takes these for a pipe, standard input, options, a position in an archive, or a range.
_NO_PATH = re.compile(r"-?|.*[|\n].*|~.*|[bt],.*|.*:[0-9]+|.*\]|\s.*|.*\s", re.DOTALL)


def build_wav_scp(recording: ListedRecording) -> str:
    """Return the line of a recording. Raises FormatError for a path that Kaldi would take for something else."""
    path = recording.path
    if _NO_PATH.fullmatch(path):
        raise FormatError(f"Kaldi's wav.scp cannot name the path {shown(path)}: rename it or choose another prefix")
    return f"{recording.id} {path}\n"


def build_segments(utterance: Utterance) -> str:
    """Return the line of an utterance with its times."""
    rate, first, last = utterance.recording.rate, utterance.offset, utterance.offset + utterance.length
    return f"{utterance.id} {utterance.recording.id} {_number(first, rate)} {_number(last, rate)}\n"


def build_text(utterance: Utterance) -> str:
    """Return the line of an utterance with its text."""
    text = _FORBIDDEN.sub(" ", utterance.text or "")
    return f"{utterance.id} {one_line(text)}".rstrip() + "\n"


def build_utt2spk(utterance: Utterance) -> str:
    return f"{utterance.id} {utterance.speaker_id}\n"


def build_utt2dur(utterance: Utterance) -> str:
    return f"{utterance.id} {_number(utterance.length, utterance.recording.rate)}\n"


def build_reco2dur(recording: ListedRecording) -> str:
    return f"{recording.id} {_number(recording.length, recording.rate)}\n"


def _number(samples: int, rate: int) -> str:
    return f"{Decimal(repr(seconds(samples, rate))):f}"


def parse_recording(line: str) -> tuple[str, str]:
    """Return the id and the path in a line of a `wav.scp`. Raises FormatError, also for a command."""
    found = line.split(None, 1)
    if len(found) < 2:
        raise FormatError("has an id, but no path")
    return found[0], checked_path(found[1].rstrip())


def parse_segments(
    segments: Iterable[Buffer], text: Iterable[Buffer] = (), utt2spk: Iterable[Buffer] = ()
) -> Iterator[Segment]:
    """Yield the segments of all recordings, with their texts and speakers, which not all must have.

    The files are merged line by line, so that memory does not depend on their size: all must be sorted by id, as Kaldi
    requires, else FormatError is raised.
    """
    texts, speakers = _Values("text", text), _Values("utt2spk", utt2spk)
    for name, number, line in _sorted("segments", segments, 5):
        if len(line) != 3:
            raise at_line(number, f"has {len(line) + 1} fields, not utterance, recording, start and end")
        recording, start, end = line
        segment: dict[str, Any] = {"id": name, "recording_id": recording}
        segment |= {"start": seconds_of(number, start), "end": seconds_of(number, end)}
        for field, values in (("text", texts), ("speaker", speakers)):
            value = values.find(name)
            if value is not None:
                segment[field] = value
        yield Segment.of(segment)
    for values in (texts, speakers):
        values.close()


class _Values:
    """A list of ids and values, in which ids are looked up in order."""

    __slots__ = ("_current", "_lines")

    def __init__(self, file: str, blocks: Iterable[Buffer]) -> None:
        self._lines = _sorted(file, blocks, 2)
        self._current = next(self._lines, None)

    def find(self, name: str) -> str | None:
        while self._current is not None and self._current[0] < name:
            self._current = next(self._lines, None)
        if self._current is None or self._current[0] != name:
            return None
        return "".join(self._current[2])

    def close(self) -> None:
        """Read the rest. Raises FormatError if it is not in order: an id of it may have been looked up in vain."""
        for _ in self._lines:
            pass


def _sorted(file: str, blocks: Iterable[Buffer], limit: int) -> Iterator[tuple[str, int, list[str]]]:
    """The id of each line, the line's number, and its other fields."""
    last = ""
    for number, (name, *rest) in fields(blocks, "", limit):
        if name <= last:
            raise at_line(number, f"{file} is not in order at {shown(name)}: sort the file with LC_ALL=C sort")
        last = name
        yield name, number, rest
