"""The selector: the samples that the `source` and `where` of a spec name.

An expression uses facts of samples (`touchfs.select.facts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.core.errors import UsageError
from touchfs.dataset import Dataset
from touchfs.dataset.interleaved import InterleavedSamples
from touchfs.dataset.samples import DatasetSamples, Samples
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.dataset.tokens.samples import TokenSamples
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.select.expression import parse_where
from touchfs.select.facts import SampleFacts
from touchfs.select.ids.names import OpenIds, open_given
from touchfs.select.selection import AnySamples, Selection, position_at
from touchfs.select.survivors import survivors
from touchfs.view.plan import parse_plan
from touchfs.view.token_plan import parse_token_plan


class Selector:
    """Selects the samples of a dataset for the `source` and `where` of a spec. Caches the latest selections.

    `survivors_path` is the directory of survivor indexes; `use_plan` is called with each plan under `merged/`;
    `open_ids` opens the lists of ids of an expression: by default, those that were given at the start.
    """

    def __init__(
        self,
        dataset: Dataset,
        survivors_path: str,
        use_plan: Callable[[str], None] = lambda plan: None,
        open_ids: OpenIds = open_given,
    ) -> None:
        self.dataset = dataset
        self._open_ids = open_ids
        self._use_plan = use_plan
        self._survivors_path = survivors_path
        self._cache: BoundedCache[tuple[str, str | None], AnySamples] = BoundedCache(_CACHE_SIZE)

    def select(self, source: str, where: str | None) -> AnySamples:
        """Return the samples below a path of the tree that match an expression. Raises UsageError for unknown ones."""

        def make() -> AnySamples:
            return self._below(source) if where is None else self.filtered(self.select(source, None), where)

        return self._cache.get((source, where), make)

    def filtered(self, samples: AnySamples, where: str) -> Selection:
        """Return the samples for which an expression is true. Raises UsageError for a bad expression."""
        expression = parse_where(where, self._open_ids)
        names = {path[0] for path in expression.fields}
        kept = survivors(SampleFacts(samples, names), expression, self._survivors_path)
        return Selection(samples, kept.positions, f"where {expression} {kept.digest.hex()}", f"where {expression}")

    def _below(self, source: str) -> AnySamples:
        """Return the samples of a view, of `merged/PLAN` or `tokens/PLAN`, or of a directory below one."""
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
        if view == "tokens":
            plan, _, shard = path.partition("/")
            if not shard:
                return TokenSamples(self.dataset, parse_token_plan(plan))
            if "/" in shard.strip("/"):
                raise UsageError(f"there is no {source!r} to select: a shard has no directories of windows")
            return self._of_directory(self.select(f"tokens/{plan}", None), shard)
        if view not in _VIEWS:
            raise UsageError(
                f"there is no {source!r} to select: choose samples, segments, interleaved, merged/PLAN, tokens/LENGTH "
                "or a path below one"
            )
        if path:
            return self._of_directory(self.select(view, None), path)
        return _VIEWS[view](self.dataset)

    def _of_directory(self, samples: AnySamples, path: str) -> AnySamples:
        name, *below = path.strip("/").split("/")
        dataset = samples.dataset
        shard = dataset.by_name.get(name.encode(errors="surrogateescape"))
        positions: Any
        if shard is None and samples.view == "shards" and (split := dataset.in_directory(name)):
            if below:
                return self._of_directory(samples, "/".join(below))
            positions = np.concatenate([np.arange(*_range_of(samples, each)) for each in split])
            return Selection(samples, positions, f"below {name}", f"below {name}")
        if shard is None:
            raise UsageError(f"there is no shard {name!r} to select")
        if not below:
            positions = range(*_range_of(samples, shard))
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
        below_path = f"below {path.strip('/')}"
        return Selection(samples, positions, below_path, below_path)


_CACHE_SIZE = 64
_VIEWS: Mapping[str, Callable[[Dataset], Samples]] = {
    "samples": DatasetSamples,
    "shards": DatasetSamples,
    "segments": SegmentSamples,
    "interleaved": InterleavedSamples,
}


def _range_of(samples: AnySamples, shard: int) -> tuple[int, int]:
    """The positions of the samples of a shard: the first one, and that after the last one."""
    return position_at(samples, (shard, 0, 0)), position_at(samples, (shard + 1, 0, 0))


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
