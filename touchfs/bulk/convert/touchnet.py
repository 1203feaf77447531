"""Samples as TouchNet's shards: the recording as mono 16-bit PCM, and the metainfo.

The metainfo is the sample's own, byte for byte, unless key, text or rate are missing or different: then it is rewritten
with them. From a cut, it is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from touchfs.bulk.convert.audio import to_pcm
from touchfs.bulk.convert.sample import JSON, TEXT, ParsedSample, is_value, plain_names, recording_in, to_metainfo
from touchfs.bulk.data_list import write_data_list
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.format.metainfo import parse_metainfo
from touchfs.limits import LIMITS, Limits
from touchfs.media.audio import Arithmetic

DATATYPES = ("audio+metainfo", "metainfo")
_DTYPES: dict[str, np.dtype[Any]] = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}


@dataclass(frozen=True, slots=True)
class TouchTarget:
    """TouchNet shards as a target. `rate` in Hz; None keeps the rate of each recording."""

    kind: ClassVar[str] = "TouchTarget"
    needs_extensions: ClassVar[bool] = False
    copies_files: ClassVar[bool] = False
    bytes_per_shard: ClassVar[None] = None
    samples_per_shard: int = 1000
    datatypes: str = DATATYPES[0]
    rate: int | None = None
    arithmetic: Arithmetic = "s16"
    limits: Limits = LIMITS

    def new_names(self, extensions: Collection[str]) -> Mapping[str, str]:
        """Plain ones, for the recording and the JSON of a row of a table."""
        return plain_names(extensions)

    def mark(self, ordinal: int) -> str:
        """The name of the directory of a shard."""
        return f"{ordinal:09d}"

    def open(self, directory: str, ordinal: int, extensions: Collection[str]) -> TouchNetSamplesWriter:
        """A writer of the shard `%09d` in the directory."""
        return TouchNetSamplesWriter(self, os.path.join(directory, self.mark(ordinal)))

    def publish(self, output: str, shards: int) -> None:
        """Write `data.list`."""
        write_data_list(output, output, [*map(self.mark, range(shards))], self.datatypes)


class TouchNetSamplesWriter:
    """Writes a shard."""

    def __init__(self, target: TouchTarget, path: str) -> None:
        self._target = target
        self._shard = TouchNetWriter(path, {name: _DTYPES[name] for name in target.datatypes.split("+")})

    @property
    def is_full(self) -> bool:
        """True if the next sample belongs to another shard."""
        return len(self._shard) == self._target.samples_per_shard

    def __enter__(self) -> Self:
        self._shard.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._shard.__exit__(*error)

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        """Add one sample. Raises FormatError, and writes nothing of it, if it cannot be stored."""
        self._shard.add(self._fields(key, files))

    def _fields(self, key: str, files: Mapping[str, Buffer]) -> dict[str, Buffer]:
        recording = recording_in(files)
        for extension in files:
            if extension not in (recording, JSON, TEXT) and not is_value(extension):
                raise FormatError(f"TouchNet cannot store {extension}: leave it out with --leave-out {extension}")
        target = self._target
        parsed = ParsedSample.of(files, target.limits.json)
        if "audio" not in target.datatypes:
            return {"metainfo": _metainfo(key, parsed, None)}
        if recording is None:
            raise FormatError("has no recording, and audio is wanted: choose --datatypes metainfo")
        pcm, rate = to_pcm(files[recording], target.rate, target.arithmetic, target.limits.decoded)
        return {"audio": pcm, "metainfo": _metainfo(key, parsed, rate)}


def _metainfo(key: str, parsed: ParsedSample, rate: int | None) -> Buffer:
    fields, stored = parsed.fields, parsed.stored
    if parsed.is_cut:
        fields = to_metainfo(key, fields, parsed.text)
        stored = _dump(fields)
    known = parse_metainfo(stored or b"{}")
    changes = {name: value for name, value in parsed.values.items() if fields.get(name) != value}
    if lost := fields.keys() & changes.keys():
        name = min(lost)
        raise FormatError(f"its metainfo has another {name} than its .{name}.…: leave that out with --leave-out")
    if known.key != key:
        changes["key"] = key
    if known.text is None and parsed.text is not None and not parsed.is_cut:
        changes["txt"] = parsed.text
    if rate is not None and known.rate != rate:
        changes["sample_rate"] = rate
    return _dump(fields | changes) if changes or not stored else stored


def _dump(fields: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # ValueError: a lone surrogate, for one
        raise FormatError(f"its metainfo cannot be written as JSON: {error}") from error
