"""Selections from the samples of a view: by path, and by filter expression.

A selection is a list of positions, so it has random access and an exact length, like the samples that it selects from.
An expression can use these facts:

    key, shard, ordinal, segment (its number in its sample)
    size.EXT     the size in bytes of the file with this extension
    duration     seconds of the recording
    text         the text of the .txt; without one, the field of the .json, such as the column of a table

and every other field of the sample's .json (`lang`, `info.speaker`), or else of a small text file by its extension
(`cls`, `caption`). The label of a class of a table, and a number in a .cls, compare as numbers and as texts. Only facts
that the expression uses are read. What a recording is follows from the catalog, else from its header. The .json has it
where these do not, and these where the .json has no such field:

    duration                 by the recording, else by the .json
    rate, channels, coding   by the .json, else by the recording: Hz, a number, and the extension, such as `flac`
"""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.dataset import Dataset
from touchfs.dataset.interleaved import InterleavedSamples
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples, Positions, Samples, as_positions
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.errors import FormatError, UsageError
from touchfs.form.compressed_content import with_compressed
from touchfs.names import hex_digest
from touchfs.select.expression import parse_where, spell_field
from touchfs.select.predicates import Named
from touchfs.select.survivors import survivors
from touchfs.view.plan import parse_plan

log = logging.getLogger(__name__)


class Selection:
    """The samples at ascending `positions` of `samples`. `description` identifies the selection in the fingerprint."""

    def __init__(self, samples: AnySamples, positions: Sequence[int] | Any, description: str) -> None:
        self.samples = samples
        self.positions = positions
        self._description = description

    @cached_property
    def fingerprint(self) -> str:
        """A string that differs if the selected data differs, wherever it is stored."""
        return self._hash(self.samples.fingerprint)

    @property
    def identity(self) -> str:
        """A string that differs if the files of the dataset or the selection differ."""
        return self._hash(self.samples.identity)

    def _hash(self, whole: str) -> str:
        text = f"{whole}\0{self._description}".encode(errors="surrogatepass")
        return hex_digest(text)

    @property
    def view(self) -> str:
        """The name of the view that the samples are of."""
        return self.samples.view

    @property
    def dataset(self) -> Dataset:
        """The dataset that the samples are of."""
        return self.samples.dataset

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: int) -> Sample:
        return self.samples[int(self.positions[position])]

    def read(self, extension: str, positions: Positions) -> list[bytes]:
        """Read the file with an extension of each sample at `positions` of the selection, as `Samples.read`."""
        chosen = as_positions(positions, len(self))
        if isinstance(self.positions, range):
            return self.samples.read(extension, chosen * self.positions.step + self.positions.start)
        return self.samples.read(extension, np.asarray(self.positions)[chosen])

    def paths(self, positions: Positions) -> list[bytes]:
        """Return the path of each sample's first file, relative to the root of the tree."""
        if isinstance(self.positions, np.ndarray):
            return self.samples.paths(self.positions[positions])
        return self.samples.paths([self.positions[position] for position in positions])


AnySamples = Samples | Selection


class Selector:
    """Selects the samples of a dataset for the `source` and `where` of a spec. Caches the latest selections.

    `survivors_path` is the directory of survivor indexes; `use_plan` is called with each plan under `merged/`.
    """

    def __init__(
        self, dataset: Dataset, survivors_path: str, use_plan: Callable[[str], None] = lambda plan: None
    ) -> None:
        self.dataset = dataset
        self._use_plan = use_plan
        self._survivors_path = survivors_path
        self._cache: dict[tuple[str, str | None], AnySamples] = {}

    def select(self, source: str, where: str | None) -> AnySamples:
        """Return the samples below a path of the tree that match an expression. Raises UsageError for unknown ones."""
        key = source, where
        if key not in self._cache:
            whole = self._below(source) if where is None else self.select(source, None)
            self._cache[key] = whole if where is None else self.filtered(whole, where)
            if len(self._cache) > _CACHE_SIZE:
                del self._cache[next(iter(self._cache))]
        return self._cache[key]

    def filtered(self, samples: AnySamples, where: str) -> Selection:
        """Return the samples for which an expression is true. Raises UsageError for a bad expression."""
        expression = parse_where(where)
        names = {path[0] for path in expression.fields}
        kept = survivors(_SampleFacts(samples, names), expression, self._survivors_path)
        return Selection(samples, kept.positions, f"where {expression} {kept.digest.hex()}")

    def _below(self, source: str) -> AnySamples:
        """Return the samples of `samples`, `segments`, `interleaved` or `merged/PLAN`, or of a directory below one."""
        view, _, path = source.partition("/")
        if view == "merged":
            plan, _, path = path.partition("/")
            canonical = parse_plan(plan)
            if plan != str(canonical):
                return self.select("/".join(filter(None, ("merged", str(canonical), path))), None)
            if path:
                return self._of_directory(self.select(f"merged/{plan}", None), path)
            self._use_plan(plan)
            return MergedSamples(self.dataset, canonical)
        if view not in _VIEWS:
            raise UsageError(
                f"there is no {source!r} to select: choose samples, segments, interleaved, merged/PLAN or a path "
                "below one"
            )
        if path:
            return self._of_directory(self.select(view, None), path)
        return _VIEWS[view](self.dataset)

    def _of_directory(self, samples: AnySamples, path: str) -> AnySamples:
        name, *below = path.strip("/").split("/")
        dataset = samples.dataset
        shard = dataset.by_name.get(name.encode(errors="surrogateescape"))
        if shard is None:
            raise UsageError(f"there is no shard {name!r} to select")
        if not below:
            positions: Any = range(position_at(samples, (shard, 0, 0)), position_at(samples, (shard + 1, 0, 0)))
        else:
            # The directories of merged segments are those of their segments.
            tables = dataset.catalog(shard).tables
            table = tables[samples.view if samples.view in tables else "segments"]
            ordinals = _ordinals_below(table, below, path)
            positions = np.fromiter(
                (
                    position
                    for ordinal in ordinals
                    for position in range(
                        position_at(samples, (shard, ordinal, 0)), position_at(samples, (shard, ordinal + 1, 0))
                    )
                ),
                np.int64,
            )
        return Selection(samples, positions, f"below {path.strip('/')}")


def source_of(view: str) -> str:
    """Return how specs and item tokens name a view: `samples` is the view `shards`."""
    return "samples" if view == "shards" else view


_CACHE_SIZE = 64
_DURATION = "duration"
_VIEWS: Mapping[str, Callable[[Dataset], Samples]] = {
    "samples": DatasetSamples,
    "shards": DatasetSamples,
    "segments": SegmentSamples,
    "interleaved": InterleavedSamples,
}


def position_at(samples: AnySamples, key: tuple[int, int, int]) -> int:
    """Return the first position whose sample has at least this key: (number of the shard, ordinal, segment)."""
    shards = samples.dataset.by_name

    def key_at(position: int) -> tuple[int, int, int]:
        sample = samples[position]
        return shards[sample.shard.encode(errors="surrogateescape")], sample.ordinal, sample.number

    return bisect_left(range(len(samples)), key, key=key_at)


def _ordinals_below(table: Table, below: Sequence[str], path: str) -> list[int]:
    row = 0
    for name in below:
        found = table.find(row, name.encode(errors="surrogateescape")) if table.kind[row] == DIRECTORY else None
        if found is None:
            raise UsageError(f"there is no {path!r} to select")
        row = found
    ordinals: set[int] = set()
    pending = [row]
    while pending:
        row = pending.pop()
        if table.kind[row] == DIRECTORY:
            pending += table.children(row)
        elif table.ordinal[row] != NO_SAMPLE:
            ordinals.add(table.ordinal[row])
    return sorted(ordinals)


# Text files that are fields, in bytes
_MEMBER_MAX = 1 << 16
_CLASS = re.compile(r"[0-9]{1,18}", re.ASCII)
# Facts that the .json tells if nothing else does.
_ALSO_IN_JSON = (_DURATION, "text")


class _SampleFacts:
    """The facts of samples, as far as an expression uses them (`Filterable`)."""

    def __init__(self, samples: AnySamples, names: set[str]) -> None:
        self._samples = samples
        self._limit = samples.dataset.limits.json
        facts: dict[str, Callable[[Sample], Any]] = {**_FACTS, "text": partial(_text, limit=self._limit)}
        self._facts = [(name, fact) for name, fact in facts.items() if name in names]
        self._defaults = [(name, fact) for name, fact in _OF_RECORDINGS.items() if name in names]
        self._others = names - facts.keys()
        self._classes: tuple[str, Mapping[str, Sequence[str]]] = "", {}
        self._hidden: set[str] = set()
        self.identity = samples.identity
        self.unmeasured = 0

    def __len__(self) -> int:
        return len(self._samples)

    def records(self, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
        for position in range(start, stop):
            sample = self._samples[position]
            record = self._described(sample) if self._others else {}
            for name, fact in self._facts:
                value = fact(sample)
                if value is None and name in _ALSO_IN_JSON:
                    value = _metainfo(sample, self._limit).get(name)
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


def _metainfo(sample: Sample, limit: int) -> dict[str, Any]:
    try:
        name = sample.json_name
        data = None if name is None else _read(sample, name, limit)
        value = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_FACTS: Mapping[str, Callable[[Sample], Any]] = {
    "key": lambda sample: sample.key,
    "shard": lambda sample: sample.shard,
    "ordinal": lambda sample: sample.ordinal,
    "segment": lambda sample: sample.number,
    "size": lambda sample: {name: size for name in sample if (size := _size(sample, name)) is not None},
    _DURATION: lambda sample: sample.known_duration,
}
# The value in a sample's .json counts first: such an expression has always meant that.
_OF_RECORDINGS: Mapping[str, Callable[[Sample], Any]] = {
    "rate": lambda sample: sample.rate,
    "channels": lambda sample: sample.channels,
    "coding": lambda sample: sample.coding,
}
