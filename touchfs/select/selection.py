"""Some of the samples of a view: those below a path, and those that a filter expression keeps.

What they are is a list of positions, so a selection is as indexed as the samples it is of, and its length is exact.
The facts that an expression can name:

    key, shard, ordinal, segment (its number in its sample)
    size.EXT     the size in bytes of the file with this extension
    duration     seconds of the .wav
    text         the text of the .txt

and all else that the sample's .json says (`lang`, `info.speaker`). Only those that it does name are looked up.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.dataset import Dataset
from touchfs.dataset.samples import DatasetSamples, Positions, ShownSamples
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.dataset.shown_sample import ShownSample
from touchfs.errors import FormatError, UsageError
from touchfs.select.expression import parse_where
from touchfs.select.survivors import survivors
from touchfs.view.plan import parse_plan


class Selection:
    """The samples at `positions`, ascending, of others. `told` says which in the fingerprint."""

    def __init__(self, samples: Samples, positions: Sequence[int] | Any, told: str) -> None:
        self.samples = samples
        self.positions = positions
        self._told = told

    @cached_property
    def fingerprint(self) -> str:
        return self._of(self.samples.fingerprint)

    @property
    def identity(self) -> str:
        return self._of(self.samples.identity)

    def _of(self, whole: str) -> str:
        told = f"{whole}\0{self._told}".encode(errors="surrogatepass")
        return hashlib.blake2b(told, digest_size=16).hexdigest()

    @property
    def view(self) -> str:
        return self.samples.view

    @property
    def dataset(self) -> Dataset:
        return self.samples.dataset

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, position: int) -> ShownSample:
        return self.samples[int(self.positions[position])]

    def paths(self, positions: Positions) -> list[bytes]:
        if isinstance(self.positions, np.ndarray):
            return self.samples.paths(self.positions[positions])
        return self.samples.paths([self.positions[position] for position in positions])


Samples = ShownSamples | Selection


class Selector:
    """Makes samples of a dataset, by what a spec says they are, and keeps those made last."""

    def __init__(
        self, dataset: Dataset, survivors_path: str, use_plan: Callable[[str], None] = lambda plan: None
    ) -> None:
        self.dataset = dataset
        self._use_plan = use_plan
        self._survivors_path = survivors_path
        self._kept: dict[tuple[str, str | None], Samples] = {}

    def select(self, source: str, where: str | None) -> Samples:
        asked = source, where
        if asked not in self._kept:
            whole = self._below(source) if where is None else self.select(source, None)
            self._kept[asked] = whole if where is None else self.filtered(whole, where)
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return self._kept[asked]

    def filtered(self, samples: Samples, where: str) -> Selected:
        """The samples for which an expression holds."""
        expression = parse_where(where)
        names = {path[0] for path in expression.fields}
        kept = survivors(_SampleFacts(samples, names), expression, self._survivors_path)
        return Selection(samples, kept.positions, f"where {expression} {kept.digest.hex()}")

    def _below(self, source: str) -> Samples:
        """`samples`, `segments`, `merged/PLAN`, or one of their directories."""
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
            raise UsageError(f"source: there is no {source!r}, but samples, segments, merged/PLAN and paths below")
        if path:
            return self._of_directory(self.select(view, None), path)
        return _VIEWS[view](self.dataset)

    def _of_directory(self, samples: Samples, path: str) -> Samples:
        name, *below = path.strip("/").split("/")
        shard = self.dataset.by_name.get(name.encode(errors="surrogateescape"))
        if shard is None:
            raise UsageError(f"source: there is no shard {name!r}")
        if not below:
            positions: Any = range(position_at(samples, (shard, 0, 0)), position_at(samples, (shard + 1, 0, 0)))
        else:
            # Merged segments are in the directories of their segments.
            table = self.dataset.catalog(shard).tables["shards" if samples.view == "shards" else "segments"]
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


_KEPT = 64
_VIEWS: Mapping[str, Callable[[Dataset], ShownSamples]] = {
    "samples": DatasetSamples,
    "shards": DatasetSamples,
    "segments": SegmentSamples,
}


def position_at(samples: Samples, place: tuple[int, int, int]) -> int:
    """The first position whose sample is at this place or behind it: a shard's position, an ordinal, a segment."""
    shards = samples.dataset.by_name

    def place_of(position: int) -> tuple[int, int, int]:
        sample = samples[position]
        return shards[sample.shard.encode(errors="surrogateescape")], sample.ordinal, sample.number

    return bisect_left(range(len(samples)), place, key=place_of)


def _ordinals_below(table: Table, below: Sequence[str], path: str) -> list[int]:
    row = 0
    for name in below:
        found = table.find(row, name.encode(errors="surrogateescape")) if table.kind[row] == DIRECTORY else None
        if found is None:
            raise UsageError(f"source: there is no {path!r}")
        row = found
    ordinals: set[int] = set()
    waiting = [row]
    while waiting:
        row = waiting.pop()
        if table.kind[row] == DIRECTORY:
            waiting += table.children(row)
        elif table.ordinal[row] != NO_SAMPLE:
            ordinals.add(table.ordinal[row])
    return sorted(ordinals)


class _SampleFacts:
    """Samples with the facts of these names."""

    def __init__(self, samples: Samples, names: set[str]) -> None:
        self._samples = samples
        self._limit = samples.dataset.limits.json
        facts: dict[str, Callable[[ShownSample], Any]] = {**_FACTS, "text": partial(_text, limit=self._limit)}
        self._facts = [(name, fact) for name, fact in facts.items() if name in names]
        self._others = names - facts.keys()
        self.identity = samples.identity

    def __len__(self) -> int:
        return len(self._samples)

    def records(self, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
        for position in range(start, stop):
            sample = self._samples[position]
            told = _metainfo(sample, self._limit) if self._others else {}
            for name, fact in self._facts:
                value = fact(sample)
                if value is None:
                    told.pop(name, None)
                else:
                    told[name] = value
            yield told


def _duration(sample: ShownSample) -> float | None:
    try:
        return sample.duration
    except (AttributeError, FormatError):
        return None


def _read(sample: ShownSample, extension: str, limit: int) -> bytes | None:
    """The file of a sample, unless there is none or it is over the limit."""
    if extension not in sample or sample.content(extension).size > limit:
        return None
    return sample[extension]


def _text(sample: ShownSample, limit: int) -> str | None:
    data = _read(sample, "txt", limit)
    return None if data is None else data.decode("utf-8", "replace")


def _metainfo(sample: ShownSample, limit: int) -> dict[str, Any]:
    try:
        data = _read(sample, "json", limit)
        told = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


_FACTS: Mapping[str, Callable[[ShownSample], Any]] = {
    "key": lambda sample: sample.key,
    "shard": lambda sample: sample.shard,
    "ordinal": lambda sample: sample.ordinal,
    "segment": lambda sample: sample.number,
    "size": lambda sample: {extension: sample.content(extension).size for extension in sample},
    "duration": _duration,
}
