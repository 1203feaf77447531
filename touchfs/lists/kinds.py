"""The lists: for each its name, the records that it shows, and how one of them becomes a piece of the list.

A piece is a line. Only in `spk2utt`, whose lines name all utterances of a speaker, it is an utterance with what is
before it. A piece names at most one path below the prefix, so the size of a list is a sum over its pieces without
prefix, and the number of paths times the size of the prefix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from touchfs.core.control_characters import has_control
from touchfs.core.errors import UsageError
from touchfs.core.names import hex_digest
from touchfs.dataset import Dataset
from touchfs.lists.records import Begins, SampleRecord, UtteranceRecord, decode_sample, decode_utterance
from touchfs.manifest import kaldi, lhotse
from touchfs.manifest.entry import Utterance
from touchfs.manifest.hugging_face import METADATA_HEADER, build_metadata_row
from touchfs.manifest.nemo import build_nemo
from touchfs.manifest.wenet import build_wenet

# Of the file that has them (`touchfs.lists.stored`).
VERSION = 3
# The one that is not made of pieces: `touchfs.lists.catalog`.
CATALOG = "catalog.arrow"
# Nor is this one: `touchfs.lists.extents`.
EXTENTS = "extents.parquet"
# The one of what others do not have.
LEFT_OUT = "left_out.txt"
# The one that a dataset without recordings has, too.
FILES = "filelist.txt"

SAMPLES, UTTERANCES, REMARKS = "samples", "utterances", "remarks"

# How to decode the records of each sort, with a prefix of their paths.
DECODERS: Mapping[str, Callable[[bytes, str], Any]] = {
    SAMPLES: decode_sample,
    UTTERANCES: decode_utterance,
    REMARKS: lambda data, prefix: data.decode(),
}


def encode(text: str) -> bytes:
    """A text of a list as bytes. A prefix may have bytes that are not UTF-8, decoded as by `os.fsdecode`."""
    return text.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class ListKind:
    """A list of all `records` of a sort. `piece` returns that of a record, "" if the list does not show it.

    `has_paths` says that each piece names a path below the prefix, and `is_json` that it does in a JSON string.
    `footer` ends a list that is not empty. With `is_below`, the paths in a mount are relative to the list's directory.
    """

    records: str
    piece: Callable[[Any], str]
    has_paths: bool = False
    is_json: bool = False
    header: str = ""
    footer: str = ""
    is_below: bool = False

    def check_prefix(self, prefix: str) -> None:
        """Raise UsageError if the control characters of a prefix, as a line break, would be in the list."""
        if self.has_paths and not self.is_json and has_control(prefix):
            problem = "its paths would have the control characters of the mount point or prefix"
            raise UsageError(f"{problem}: choose another --path-prefix, or a list in JSON")

    def prefix_size(self, prefix: str) -> int:
        """The number of bytes that a prefix takes in a piece."""
        if not self.has_paths:
            return 0
        return len(json.dumps(prefix)) - 2 if self.is_json else len(encode(prefix))


def _kaldi_recordings(build: Callable[[Any], str], *, has_paths: bool = False) -> ListKind:
    def piece(record: SampleRecord) -> str:
        return build(record.recording) if record.in_kaldi else ""

    return ListKind(SAMPLES, piece, has_paths)


def _kaldi_utterances(build: Callable[[Utterance], str]) -> ListKind:
    def piece(record: UtteranceRecord) -> str:
        return build(record.listed.utterance) if record.in_kaldi else ""

    return ListKind(UTTERANCES, piece)


def _spk2utt(record: UtteranceRecord) -> str:
    if not record.in_kaldi:
        return ""
    utterance = record.listed.utterance
    above = {Begins.NOTHING: "", Begins.SPEAKER: f"\n{utterance.speaker_id}", Begins.LIST: utterance.speaker_id}
    return f"{above[record.begins]} {utterance.id}"


def _cut(record: SampleRecord) -> str:
    return lhotse.build_cut(record.recording, record.utterances) if record.is_recording else ""


def _recording(record: SampleRecord) -> str:
    return lhotse.build_recording(record.recording) if record.is_recording else ""


def _of_utterance(build: Callable[[Utterance], str]) -> Callable[[UtteranceRecord], str]:
    return lambda record: build(record.listed.utterance)


def _metadata_row(record: UtteranceRecord) -> str:
    return build_metadata_row(record.listed.path, record.listed.utterance)


LISTS: Mapping[str, ListKind] = {
    FILES: ListKind(SAMPLES, lambda record: f"{record.recording.path}\n", has_paths=True),
    "hf/metadata.csv": ListKind(UTTERANCES, _metadata_row, True, header=METADATA_HEADER, is_below=True),
    "kaldi/reco2dur": _kaldi_recordings(kaldi.build_reco2dur),
    "kaldi/segments": _kaldi_utterances(kaldi.build_segments),
    "kaldi/spk2utt": ListKind(UTTERANCES, _spk2utt, footer="\n"),
    "kaldi/text": _kaldi_utterances(kaldi.build_text),
    "kaldi/utt2dur": _kaldi_utterances(kaldi.build_utt2dur),
    "kaldi/utt2spk": _kaldi_utterances(kaldi.build_utt2spk),
    "kaldi/wav.scp": _kaldi_recordings(kaldi.build_wav_scp, has_paths=True),
    LEFT_OUT: ListKind(REMARKS, lambda line: f"{line}\n"),
    "lhotse/cuts.jsonl": ListKind(SAMPLES, _cut, True, True),
    "lhotse/recordings.jsonl": ListKind(SAMPLES, _recording, True, True),
    "lhotse/supervisions.jsonl": ListKind(UTTERANCES, _of_utterance(lhotse.build_supervision)),
    "nemo_manifest.jsonl": ListKind(UTTERANCES, _of_utterance(build_nemo), True, True),
    "wenet/data.list": ListKind(UTTERANCES, _of_utterance(build_wenet), True, True),
}

# All lists, by their paths below `manifests/`.
NAMES = tuple(sorted([*LISTS, CATALOG]))


def is_below(name: str) -> bool:
    """True if the paths of a list in a mount are relative to the list's own directory, which has links to the views."""
    return name in LISTS and LISTS[name].is_below


def lists_name(dataset: Dataset) -> str:
    """The name of a dataset's lists in the scratch store, 32 hexadecimal digits: a hash of all that they depend on."""
    facts = [VERSION, dataset.limits.json, [(shard.directory + shard.name, shard.identity) for shard in dataset.shards]]
    return hex_digest(json.dumps(facts).encode())
