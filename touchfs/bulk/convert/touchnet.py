"""Samples as TouchNet's shards: the recording as mono 16-bit PCM, and the metainfo.

The metainfo is the sample's own, byte for byte, unless it lacks the key, the text or the rate, or names others: then it
is written anew with them. Of a cut it is made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from touchfs.bulk.convert.audio import to_pcm
from touchfs.bulk.convert.sample import JSON, TEXT, ParsedSample, is_value, recording_in, to_metainfo
from touchfs.bulk.data_list import write_data_list
from touchfs.errors import FormatError
from touchfs.extent import Buffer
from touchfs.format.metainfo import parse_metainfo
from touchfs.limits import LIMITS, Limits
from touchfs.media.audio import Arithmetic
from touchfs.write.touchnet import TouchNetWriter

DATATYPES = ("audio+metainfo", "metainfo")
_DTYPES: dict[str, np.dtype[Any]] = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}


@dataclass(frozen=True, slots=True)
class TouchTarget:
    """Without a rate, each recording keeps its own."""

    samples_per_shard: int = 1000
    datatypes: str = DATATYPES[0]
    rate: int | None = None
    arithmetic: Arithmetic = "s16"
    limits: Limits = LIMITS

    def mark(self, ordinal: int) -> str:
        return f"{ordinal:09d}"

    def open(self, output: str, extensions: Callable[[], Collection[str]], first: int) -> TouchNetSamplesWriter:
        return TouchNetSamplesWriter(self, output, first)


class TouchNetSamplesWriter:
    """`%09d` in the output, and at the end `data.list`."""

    def __init__(self, target: TouchTarget, output: str, first: int) -> None:
        self.shards = first
        self._target = target
        self._output = output
        self._shard: TouchNetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._end(*error)
        if error[0] is None:
            names = [*map(self._target.mark, range(self.shards))]
            write_data_list(self._output, self._output, names, self._target.datatypes)

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        fields = self._fields(key, files)
        if self._shard is None:
            path = os.path.join(self._output, self._target.mark(self.shards))
            dtypes = {name: _DTYPES[name] for name in self._target.datatypes.split("+")}
            self._shard = TouchNetWriter(path, dtypes).__enter__()
        self._shard.add(fields)
        if len(self._shard) == self._target.samples_per_shard:
            self._end(None, None, None)

    def _end(self, *error: Any) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.__exit__(*error)
            self.shards += error[0] is None

    def _fields(self, key: str, files: Mapping[str, Buffer]) -> dict[str, Buffer]:
        recording = recording_in(files)
        for extension in files:
            if extension not in (recording, JSON, TEXT) and not is_value(extension):
                raise FormatError(f"TouchNet has no place for {extension}: leave it out with --leave-out {extension}")
        target = self._target
        told = ParsedSample.of(files, target.limits.json)
        if "audio" not in target.datatypes:
            return {"metainfo": _metainfo(key, told, None)}
        if recording is None:
            raise FormatError("has no recording, and audio is wanted: choose --datatypes metainfo")
        pcm, rate = to_pcm(files[recording], target.rate, target.arithmetic, target.limits.decoded)
        return {"audio": pcm, "metainfo": _metainfo(key, told, rate)}


def _metainfo(key: str, told: ParsedSample, rate: int | None) -> Buffer:
    fields, stored = told.fields, told.stored
    if told.is_cut:
        fields = to_metainfo(key, fields, told.text)
        stored = _dump(fields)
    known = parse_metainfo(stored or b"{}")
    wanted = {name: value for name, value in told.values.items() if fields.get(name) != value}
    if lost := fields.keys() & wanted.keys():
        name = min(lost)
        raise FormatError(f"its metainfo has another {name} than its .{name}.…: leave that out with --leave-out")
    if known.key != key:
        wanted["key"] = key
    if known.text is None and told.text is not None and not told.is_cut:
        wanted["txt"] = told.text
    if rate is not None and known.rate != rate:
        wanted["sample_rate"] = rate
    return _dump(fields | wanted) if wanted or not stored else stored


def _dump(fields: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # of which half a character is one
        raise FormatError(f"its metainfo cannot be written as JSON: {error}") from error
