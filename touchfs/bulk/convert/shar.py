"""Samples as Lhotse Shar: a cut each, whose id is the key, with the sample's recording, arrays and texts.

    wav flac mp3 …      the cut's recording, as it is
    NAME.wav …          a custom recording
    NAME.npy NAME.llc   an array: the cut's features, or a custom one; of an .npy without a name it is `npy`
    json                metainfo, whose segments become supervisions, and which is kept in "custom"; or a cut
    txt                 without segments, the text of one supervision over all
    NAME.txt NAME.json  a custom value

All shards have the same fields, so what there is in any sample must be known before the first is written. A recording
is of the kind `original` where not all of a field are of one coding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from touchfs.bulk.convert.sample import AUDIO, JSON, OWN, TEXT, ParsedSample, recording_in, to_supervisions
from touchfs.errors import FormatError
from touchfs.extent import Buffer
from touchfs.limits import LIMITS, Limits
from touchfs.write.shar.audio import FORMATS, scan
from touchfs.write.shar.cut import CUTS
from touchfs.write.shar.fields import check_fields
from touchfs.write.shar.manifests import is_array, is_recording
from touchfs.write.shar.writer import SharWriter

_ARRAYS = {"npy": "numpy", "llc": "lilcom"}
_RECORDING = "recording"


def fields_for(extensions: Iterable[str]) -> dict[str, str]:
    """The fields of a Shar of samples with these extensions among them. What is no data of a cut is passed over."""
    fields: dict[str, str] = {}
    for extension in sorted(extensions):
        field, kind = field_of(extension)
        if kind in (*AUDIO, *_ARRAYS.values()):
            kind = kind if kind in (*FORMATS, *_ARRAYS.values()) else "original"
            if fields.setdefault(field, kind) != kind:
                if kind in _ARRAYS.values() or fields[field] in _ARRAYS.values():
                    raise FormatError(f"{field} is not of one kind in all samples: leave one out with --leave-out")
                fields[field] = "original"
    check_fields(fields)
    return fields


def field_of(extension: str) -> tuple[str, str]:
    """The field of a file, and a coding, a kind of array, `json`, `txt`, or nothing that a cut can have."""
    name, _, last = extension.rpartition(".")
    kind = last.lower()
    if kind in AUDIO:
        return name or _RECORDING, kind
    if kind in _ARRAYS:
        return name or kind, _ARRAYS[kind]
    return (name, kind) if kind in (JSON, TEXT) else ("", "")


@dataclass(frozen=True, slots=True)
class SharTarget:
    samples_per_shard: int = 1000
    limits: Limits = LIMITS

    def mark(self, ordinal: int) -> str:
        return f"{CUTS}.{ordinal:06d}.jsonl.idx"

    def open(self, output: str, extensions: Callable[[], Collection[str]], first: int) -> SharSamplesWriter:
        return SharSamplesWriter(output, fields_for(extensions()), self.samples_per_shard, self.limits, first)


class SharSamplesWriter:
    """Lines are not compressed, so that Lhotse can use the indexes."""

    def __init__(
        self,
        output: str,
        fields: Mapping[str, str],
        samples_per_shard: int,
        limits: Limits = LIMITS,
        first: int = 0,
    ) -> None:
        self._limit = limits.json
        self._first = first
        self._samples_per_shard = samples_per_shard
        self._samples = 0
        self._writer = SharWriter(
            output,
            fields,
            samples_per_shard,
            warn_unused_fields=False,
            shard_offset=first,
            compress_jsonl=False,
        )

    @property
    def shards(self) -> int:
        return self._first + self._samples // self._samples_per_shard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)
        self._samples += -self._samples % self._samples_per_shard  # the last one is there, too

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        told = ParsedSample.of(files, self._limit)
        recording = recording_in(files)
        payloads: dict[str, Buffer] = {}
        for extension, data in files.items():
            field, kind = field_of(extension)
            if not kind:
                raise FormatError(f"a Shar has no place for its {extension}: leave it out with --leave-out {extension}")
            if kind in (JSON, TEXT):
                continue
            if field in payloads:
                raise FormatError(f"has two of {field}: leave one out with --leave-out {extension}")
            payloads[field] = data
        if told.is_cut:
            cut = _of_cut(key, told, payloads)
        elif recording is None:
            raise FormatError("has no recording, so a cut of it would be of no length")
        else:
            cut = _of_metainfo(key, told, files[recording])
        self._writer.write(cut, payloads)
        self._samples += 1


def _of_metainfo(key: str, told: ParsedSample, recording: Buffer) -> dict[str, Any]:
    shape = scan(recording)
    duration = shape.num_samples / shape.sampling_rate
    channel = 0 if shape.channels == 1 else list(range(shape.channels))
    kept = {OWN: {"metainfo": told.fields}} if told.fields else {}  # of which Lhotse sees no further than OWN
    return {
        "id": key,
        "duration": duration,
        "channel": channel,
        "supervisions": to_supervisions(key, told.fields, told.text, duration, channel),
        "custom": {**told.values, **kept},
    }


def _of_cut(key: str, told: ParsedSample, payloads: Mapping[str, Buffer]) -> dict[str, Any]:
    """Without the placeholders of what was left out. A manifest of data that is elsewhere stays."""

    def kept(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name in payloads or not _stands_for_data(value)}

    custom = told.fields.get("custom")
    named = told.values | (kept(custom) if isinstance(custom, dict) else {})
    return {**kept(told.fields), "id": key, "custom": named}


def _stands_for_data(manifest: Any) -> bool:
    if is_recording(manifest):
        sources = manifest["sources"]
        sources = sources if isinstance(sources, list) else []
        return any(isinstance(source, dict) and source.get("type") == "shar" for source in sources)
    array = manifest.get("array", manifest) if is_array(manifest) else manifest
    return isinstance(array, dict) and array.get("storage_type") == "shar"  # of features, too
