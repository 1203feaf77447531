"""Records: all that lists say about a recording or an utterance, as a line of JSON.

Paths are stored relative to the root of the tree, and decoded with a prefix.
"""

from __future__ import annotations

import json
from enum import IntEnum
from typing import NamedTuple

from touchfs.manifest.entry import ListedRecording, Utterance


class ListedUtterance(NamedTuple):
    """An utterance, the path of a file with its audio alone, and where it is from: shard, key, number of the segment.

    Paths are relative to the root of the tree.
    """

    utterance: Utterance
    path: str
    shard: str
    key: str
    number: int


class ListedSample(NamedTuple):
    """A recording with its utterances."""

    recording: ListedRecording
    utterances: list[ListedUtterance]


class Begins(IntEnum):
    """The thing that an utterance begins in `spk2utt`: nothing, the line of a speaker, or the whole list."""

    NOTHING, SPEAKER, LIST = range(3)


class SampleRecord(NamedTuple):
    """A recording with its utterances. It is `in_kaldi` if Kaldi's lists can have it: with a path and an utterance.
    A file of a dataset without recordings is one of 0 Hz.
    """

    recording: ListedRecording
    utterances: list[Utterance]
    in_kaldi: bool

    @property
    def is_recording(self) -> bool:
        """False for a file of a dataset without recordings."""
        return self.recording.rate > 0


class UtteranceRecord(NamedTuple):
    """An utterance, and what it begins in `spk2utt`, which has it if it is `in_kaldi`."""

    listed: ListedUtterance
    in_kaldi: bool
    begins: Begins


def in_kaldi(recording: ListedRecording) -> bool:
    """True if Kaldi's lists can name a recording: it would take a path with a bar for a command."""
    return "|" not in recording.path


def encode_sample(sample: ListedSample) -> bytes:
    """Encode a recording with its utterances."""
    utterances = [_utterance_fields(each.utterance) for each in sample.utterances]
    return json.dumps([sample.recording, utterances]).encode()


def decode_sample(data: bytes, prefix: str) -> SampleRecord:
    """Decode what `encode_sample` returns."""
    stored, utterances = json.loads(data)
    recording = _recording(stored, prefix)
    spoken = [_utterance(recording, fields) for fields in utterances]
    return SampleRecord(recording, spoken, bool(spoken) and in_kaldi(ListedRecording(*stored)))


def encode_utterance(listed: ListedUtterance) -> bytes:
    """Encode an utterance, without what it begins."""
    utterance, *place = listed
    return json.dumps([utterance.recording, _utterance_fields(utterance), place]).encode()


def with_beginning(data: bytes, begins: Begins) -> bytes:
    return b"%d%b" % (begins, data)


def decode_utterance(data: bytes, prefix: str) -> UtteranceRecord:
    """Decode what `with_beginning` returns."""
    stored, fields, (path, shard, key, number) = json.loads(data[1:])
    utterance = _utterance(_recording(stored, prefix), fields)
    listed = ListedUtterance(utterance, prefix + path, shard, key, number)
    return UtteranceRecord(listed, in_kaldi(ListedRecording(*stored)), Begins(int(data[:1])))


def _utterance_fields(utterance: Utterance) -> list[str | int | None]:
    return [utterance.id, *utterance[2:]]


def _utterance(recording: ListedRecording, fields: list[str]) -> Utterance:
    name, *others = fields
    return Utterance(name, recording, *others)  # type: ignore[arg-type]


def _recording(stored: list[str], prefix: str) -> ListedRecording:
    name, path, *others = stored
    return ListedRecording(name, prefix + path, *others)  # type: ignore[arg-type]
