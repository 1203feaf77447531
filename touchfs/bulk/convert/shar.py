"""Samples as Lhotse Shar: one cut each, whose id is the key, with the sample's recording, arrays and texts.

    wav flac mp3 …      the cut's recording, as it is
    NAME.wav …          a custom recording
    NAME.npy NAME.llc   an array: the cut's features, or a custom one; an .npy without a name is called `npy`
    json                metainfo, whose segments become supervisions, and which is kept in "custom"; or a cut
    txt                 without segments, the text of one supervision over the whole cut
    NAME.txt NAME.json  a custom value

All shards have the same fields, so the files of all samples must be known before the first is written. If the
recordings of a field have different encodings, its kind is `original`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from touchfs.bulk.convert.sample import JSON, OWN, TEXT, ParsedSample, plain_names, recording_in, to_supervisions
from touchfs.containers.shar.write.audio import FORMATS, scan
from touchfs.containers.shar.write.cut import CUTS
from touchfs.containers.shar.write.fields import check_fields
from touchfs.containers.shar.write.manifests import is_array, is_recording
from touchfs.containers.shar.write.writer import SharWriter
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.limits import LIMITS, Limits
from touchfs.media.extensions import AUDIO

_ARRAYS = {"npy": "numpy", "llc": "lilcom"}
_RECORDING = "recording"


def fields_for(extensions: Iterable[str]) -> dict[str, str]:
    """The fields of a Shar for samples with these extensions. Other files are ignored. Raises FormatError."""
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
    """The field of a file, and its encoding, kind of array, `json` or `txt`; ("", "") if a cut cannot have it."""
    name, _, last = extension.rpartition(".")
    kind = last.lower()
    if kind in AUDIO:
        return name or _RECORDING, kind
    if kind in _ARRAYS:
        return name or kind, _ARRAYS[kind]
    return (name, kind) if kind in (JSON, TEXT) else ("", "")


@dataclass(frozen=True, slots=True)
class SharTarget:
    """Lhotse Shar as a target."""

    kind: ClassVar[str] = "SharTarget"
    needs_extensions: ClassVar[bool] = True
    copies_files: ClassVar[bool] = False
    bytes_per_shard: ClassVar[None] = None
    samples_per_shard: int = 1000
    limits: Limits = LIMITS

    def new_names(self, extensions: Collection[str]) -> Mapping[str, str]:
        """Plain ones, for the recording and the JSON of a row of a table."""
        return plain_names(extensions)

    def mark(self, ordinal: int) -> str:
        """The name of the file of a shard that appears last."""
        return f"{CUTS}.{ordinal:06d}.jsonl.idx"

    def open(self, directory: str, ordinal: int, extensions: Collection[str]) -> SharSamplesWriter:
        """A writer of a shard. `extensions` are those of all samples. Raises FormatError if they do not fit."""
        return SharSamplesWriter(self, directory, ordinal, fields_for(extensions))

    def publish(self, output: str, shards: int) -> None:
        """Do nothing: the files are complete by themselves."""


class SharSamplesWriter:
    """Writes the samples of a shard as cuts. JSONL files are not compressed, so that Lhotse can use their indexes.

    Without samples there are no files, as Lhotse has no empty shards.
    """

    def __init__(self, target: SharTarget, directory: str, ordinal: int, fields: Mapping[str, str]) -> None:
        self._target = target
        self._samples = 0
        self._writer = SharWriter(
            directory,
            fields,
            sys.maxsize,  # the caller ends the shard
            warn_unused_fields=False,
            shard_offset=ordinal,
            compress_jsonl=False,
        )

    @property
    def is_full(self) -> bool:
        """True if the next sample belongs to another shard."""
        return self._samples == self._target.samples_per_shard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._writer.__exit__(*error)

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        """Add one sample. Raises FormatError, and writes nothing of it, if it cannot be stored."""
        parsed = ParsedSample.of(files, self._target.limits.json)
        recording = recording_in(files)
        payloads: dict[str, Buffer] = {}
        for extension, data in files.items():
            field, kind = field_of(extension)
            if not kind:
                raise FormatError(f"a Shar cannot store its {extension}: leave it out with --leave-out {extension}")
            if kind in (JSON, TEXT):
                continue
            if field in payloads:
                raise FormatError(f"has two of {field}: leave one out with --leave-out {extension}")
            payloads[field] = data
        if parsed.is_cut:
            cut = _cut_from_cut(key, parsed, payloads)
        elif recording is None:
            raise FormatError("has no recording, so a cut of it would be of no length")
        else:
            cut = _cut_from_metainfo(key, parsed, files[recording])
        self._writer.write(cut, payloads)
        self._samples += 1


def _cut_from_metainfo(key: str, parsed: ParsedSample, recording: Buffer) -> dict[str, Any]:
    shape = scan(recording)
    duration = shape.num_samples / shape.sampling_rate
    channel = 0 if shape.channels == 1 else list(range(shape.channels))
    kept = {OWN: {"metainfo": parsed.fields}} if parsed.fields else {}  # Lhotse looks no deeper than OWN
    return {
        "id": key,
        "duration": duration,
        "channel": channel,
        "supervisions": to_supervisions(key, parsed.fields, parsed.text, shape.sampling_rate, duration, channel),
        "custom": {**parsed.values, **kept},
    }


def _cut_from_cut(key: str, parsed: ParsedSample, payloads: Mapping[str, Buffer]) -> dict[str, Any]:
    """The cut without placeholders for files that were left out. Manifests of data stored elsewhere stay."""

    def remaining(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name in payloads or not _stands_for_data(value)}

    custom = parsed.fields.get("custom")
    named = parsed.values | (remaining(custom) if isinstance(custom, dict) else {})
    return {**remaining(parsed.fields), "id": key, "custom": named}


def _stands_for_data(manifest: Any) -> bool:
    if is_recording(manifest):
        sources = manifest["sources"]
        sources = sources if isinstance(sources, list) else []
        return any(isinstance(source, dict) and source.get("type") == "shar" for source in sources)
    array = manifest.get("array", manifest) if is_array(manifest) else manifest
    return isinstance(array, dict) and array.get("storage_type") == "shar"  # also for features
