"""Facts of samples, as filter expressions use them:

    key, shard, ordinal, segment (its number in its sample)
    size.EXT     the size in bytes of the file with this extension
    duration     seconds of the recording
    text         the text of the .txt; without one, the field of the .json, such as the column of a table
    characters   how many characters that text has
    segments     how many segments the sample has in `segments/`; if none, the field of the .json, else 0

and every other field of the sample's .json (`lang`, `info.speaker`), or else of its overlays, or else a small text file
by its extension (`cls`, `caption`). The label of a class of a table, and a number in a .cls, compare as numbers and as
texts. Only facts that the expression uses are read. What a recording is follows from the catalog, else from its header.
The .json has it where these do not, and these where the .json has no such field:

    duration                 by the recording, else by the .json, else by reading the recording
    rate, channels, coding   by the .json, else by the recording: Hz, a number, and the extension, such as `flac`

Recordings are read for their length only if few have an unknown one, and only short ones, which takes about a second.
These bounds are numbers of the data, not of time: the same files and expression select the same samples everywhere, or
raise an error, as where a decoder is missing or is stopped.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from touchfs.core.errors import DecodeLimitError, FormatError
from touchfs.core.packed_bytes import PackedBytes
from touchfs.dataset.sample import Sample
from touchfs.form.compressed_content import with_compressed
from touchfs.select.expression import spell_field
from touchfs.select.predicates import Named
from touchfs.select.selection import AnySamples

log = logging.getLogger(__name__)

_DURATION, _SEGMENTS, _CHARACTERS = "duration", "segments", "characters"
# Text files that are fields, in bytes
_MEMBER_MAX = 1 << 16
_CLASS = re.compile(r"[0-9]{1,18}", re.ASCII)
# So many recordings, of so many bytes each, are read for their length, if no others have an unknown one: a minute of
# MP3 takes 25 ms, besides the start of the decoder.
_READ_MOST = 32
_READ_BYTES = 1 << 18
# Facts that the .json tells if nothing else does.
_ALSO_IN_JSON = (_DURATION, "text", _SEGMENTS)


class SampleFacts:
    """The facts of samples, as far as an expression uses them (`Filterable`)."""

    def __init__(self, samples: AnySamples, names: set[str]) -> None:
        self._samples = samples
        self._limit = samples.dataset.limits.json
        facts: dict[str, Callable[[Sample], Any]] = {
            **_FACTS,
            "text": partial(_text, limit=self._limit),
            _CHARACTERS: partial(_characters, limit=self._limit),
        }
        self._facts = [(name, fact) for name, fact in facts.items() if name in names]
        self._defaults = [(name, fact) for name, fact in _OF_RECORDINGS.items() if name in names]
        self._others = names - facts.keys()
        self._classes: tuple[str, Mapping[str, Sequence[str]]] = "", {}
        self._hidden: set[str] = set()
        self._are_few = sum(shard.unmeasured for shard in samples.dataset.shards) <= _READ_MOST
        self.identity = samples.identity
        self.unmeasured = 0

    def __len__(self) -> int:
        return len(self._samples)

    def keys(self, start: int, stop: int) -> Iterator[PackedBytes]:
        return self._samples.keys(np.arange(start, stop))

    def records(self, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
        for position in range(start, stop):
            sample = self._samples[position]
            record = self._described(sample) if self._others else {}
            for name, fact in self._facts:
                value = fact(sample)
                if value is None and name in _ALSO_IN_JSON:
                    value = _metainfo(sample, self._limit).get(name)
                if value is None and name == _DURATION and self._are_few:
                    value = sample.find_duration(_READ_BYTES)
                if value is None and name == _SEGMENTS:
                    value = 0
                if value is None:
                    record.pop(name, None)
                    self.unmeasured += name == _DURATION and sample.coding is not None
                else:
                    record[name] = value
            for name, fact in self._defaults:
                if name not in record and (value := fact(sample)) is not None:
                    record[name] = value
            yield record

    def _described(self, sample: Sample) -> dict[str, Any]:
        """The fields of a sample's .json, with the names of classes, and its text files that have names of others."""
        record = _metainfo(sample, self._limit)
        for name in self._others:
            if name in sample and name in record:
                self._tell(name)
            elif name not in record and name not in _OF_RECORDINGS:
                value = _member(sample, name)
                if value is not None:
                    record[name] = value
        for name, classes in self._classes_of(sample.shard).items():
            label = record.get(name)
            if type(label) is int and 0 <= label < len(classes):
                record[name] = Named(label, classes[label])
        return record

    def _tell(self, name: str) -> None:
        if name not in self._hidden:
            self._hidden.add(name)
            log.warning("where: %s is the field of the .json, not the file .%s", spell_field((name,)), name)

    def _classes_of(self, shard: str) -> Mapping[str, Sequence[str]]:
        """The names of the classes of columns of a shard."""
        if self._classes[0] != shard:
            dataset = self._samples.dataset
            number = dataset.by_name[shard.encode(errors="surrogateescape")]
            self._classes = shard, dataset.catalog(number).facts.classes
        return self._classes[1]


def _member(sample: Sample, name: str) -> str | Named | None:
    """The text of a small file of a sample; None if it has none, or one that is not text."""
    stored = next((each for each in with_compressed(name) if each in sample), None)
    data = None if stored is None else _read(sample, stored, _MEMBER_MAX)
    try:
        text = None if data is None else data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return None
    if text is not None and name == "cls" and _CLASS.fullmatch(text):
        return Named(int(text), text)
    return text


def _size(sample: Sample, extension: str) -> int | None:
    """Return the size of a file of a sample, or None if it depends on a recording that cannot be decoded."""
    try:
        return sample.content(extension).size
    except DecodeLimitError:
        raise
    except FormatError:
        return None


def _read(sample: Sample, extension: str, limit: int) -> bytes | None:
    """Return the content of a file of a sample, decompressed, or None if it is over the limit."""
    try:
        return sample.plain(extension, limit)
    except FormatError:
        return None


def _text(sample: Sample, limit: int) -> str | None:
    name = sample.text_name
    data = None if name is None else _read(sample, name, limit)
    return None if data is None else data.decode("utf-8", "replace")


def _characters(sample: Sample, limit: int) -> int | None:
    text = _text(sample, limit)
    if text is None:
        text = _metainfo(sample, limit).get("text")
    return len(text) if isinstance(text, str) else None


def _metainfo(sample: Sample, limit: int) -> dict[str, Any]:
    """The fields of a sample's .json and of overlays."""
    try:
        name = sample.json_name
        data = None if name is None else _read(sample, name, limit)
        value = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        value = None
    try:
        overlaid = sample.overlaid()
    except FormatError:
        overlaid = {}
    return {**overlaid, **(value if isinstance(value, dict) else {})}


_FACTS: Mapping[str, Callable[[Sample], Any]] = {
    "key": lambda sample: sample.key,
    "shard": lambda sample: sample.shard,
    "ordinal": lambda sample: sample.ordinal,
    "segment": lambda sample: sample.number,
    "size": lambda sample: {name: size for name in sample if (size := _size(sample, name)) is not None},
    _DURATION: lambda sample: sample.known_duration,
    _SEGMENTS: lambda sample: sample.segment_count or None,
}
# The value in a sample's .json counts first: such an expression has always meant that.
_OF_RECORDINGS: Mapping[str, Callable[[Sample], Any]] = {
    "rate": lambda sample: sample.rate,
    "channels": lambda sample: sample.channels,
    "coding": lambda sample: sample.coding,
}
