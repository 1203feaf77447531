"""Lists of samples: in stored, random or sorted order, by position, and those that a filter finds.

A page of a list costs the same at any position. A filter is tried on samples in their order until there are enough, or
for a third of a second: then the page has what was found, and a link to go on. So a page needs no state.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import islice
from time import monotonic
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from touchfs.catalog.columns import as_array
from touchfs.catalog.table import DIRECTORY, NO_SAMPLE
from touchfs.core.errors import TouchfsError, UsageError
from touchfs.core.json_text import parse_json
from touchfs.core.measure import SECONDS
from touchfs.dataset import Dataset
from touchfs.dataset.catalogued import CataloguedSample
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import CataloguedSamples, DatasetSamples
from touchfs.explore.linked import OWN, LinkedSample, ListQuery, SampleList, url_of
from touchfs.explore.recordings import format_seconds
from touchfs.media.extensions import coding_of, is_image, is_video, recordings_among
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.pages.offered import fields_of, sorts_of
from touchfs.pages.search import Order, Search, walk
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.select.expression import Where, parse_where, spell_field
from touchfs.select.facts import SampleFacts
from touchfs.select.ids.names import open_given
from touchfs.select.selection import AnySamples
from touchfs.select.selector import Selector

ROWS = 50
SORTS = ("duration", "size", "segments")
_SEARCH_SECONDS = 0.3
# Samples of a sorted list. Deeper ones are found by a filter.
_SORTED = 10_000
_ALL = ListQuery()
_TEXT, _READ, _DECOMPRESSED, _COLUMNS = 280, 1 << 16, 1 << 20, 6
_SORTS_KEPT = 8
# What browsers show. Images of other kinds, and larger ones, are shown small.
SHOWN, _SHOWN_BYTES = frozenset({"avif", "bmp", "gif", "jpeg", "jpg", "png", "webp"}), 1 << 20


class Lists:
    """The lists of a dataset, all of whose shards are indexed, for any number of threads."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._selector = Selector(dataset, "")  # no index of survivors is made
        self._sorted: BoundedCache[tuple[str, str], NDArray[np.int64]] = BoundedCache(_SORTS_KEPT)
        self._offered: BoundedCache[str, tuple[Sequence[str], Sequence[str]]] = BoundedCache(_SORTS_KEPT)

    def page(
        self,
        query: ListQuery = _ALL,
        first: int = 0,
        chosen: NDArray[np.int64] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> SampleList:
        """The samples of a list from the place `first` of its order on. `chosen` are the positions of those that were
        given, in their order. A bad filter is a problem of the page.

        Raises UsageError for what is no source of samples, and no order.
        """
        samples = self.samples(query.of)
        order, total = self._order(samples, query, chosen)
        first = min(max(first, 0), total)
        sorts, fields = self._offered.get(query.of, lambda: (sorts_of(samples), fields_of(samples)))
        shown = SampleList(
            *(query.of, query.where, query.sort, query.seed, first, total, first, ()),
            sorts=sorts,
            fields=fields,
            ids=query.ids,
            but=query.but,
            also=query.also,
        )
        if total < (len(samples) if chosen is None else len(chosen)):
            shown = replace(shown, remark=f"of these {total:,}, which are sorted, a filter leaves fewer")
        if query.where:
            try:
                return self._found(shown, samples, order, parse_where(query.where, open_given), clock)
            except UsageError as error:
                return replace(shown, problem=error.message, column=_column(query.where, error.offset))
        rows = [_row(query, samples, *each) for each in islice(walk(order, total, first), ROWS)]
        previous = query.url(max(first - ROWS, 0)) if first else ""
        following = query.url(first + ROWS) if first + ROWS < total else ""
        return replace(shown, searched=first + len(rows), rows=rows, previous=previous, following=following)

    def samples(self, of: str) -> AnySamples:
        """What a list is of. Raises UsageError."""
        return self._selector.select(of, None)

    def beside(
        self,
        query: ListQuery,
        place: int,
        chosen: NDArray[np.int64] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> tuple[str, str]:
        """The URLs of the samples before and after a place of a list, or ""; where the search for one takes long, that
        of the page of the list that goes on. Raises UsageError as `page`, and for a bad filter.
        """
        samples = self.samples(query.of)
        order, total = self._order(samples, query, chosen)
        wanted = parse_where(query.where, open_given) if query.where else None
        facts = SampleFacts(samples, {path[0] for path in wanted.fields} if wanted else set())

        def found(step: int) -> str:
            until = clock() + _SEARCH_SECONDS / 2
            for each, position in walk(order, total, place + step, step):
                if wanted is None or any(map(wanted.matches, facts.records(position, position + 1))):
                    return query.sample_url(sample_url(samples[position]), each)
                if clock() >= until:
                    return query.url(each if step > 0 else max(2 * each - place, 0))
            return ""

        return found(-1), found(1)

    def _order(self, samples: AnySamples, query: ListQuery, chosen: NDArray[np.int64] | None) -> tuple[Order, int]:
        """A function from places to positions, and how many places there are."""
        total, sort = len(samples) if chosen is None else len(chosen), query.sort
        if sort == "random":
            mixed = Feistel(total, round_keys(query.seed))
            places: Order = lambda start, stop: mixed(np.arange(start, stop, dtype=np.int64))  # noqa: E731
            return (places if chosen is None else lambda start, stop: chosen[places(start, stop)]), total
        if sort == "stored" and chosen is None:
            return np.arange, total
        if sort == "stored" and chosen is not None:
            positions = np.sort(chosen)
        elif sort == "listed" and chosen is not None:
            positions = chosen
        elif sort.removeprefix("-") not in SORTS:
            known = ", ".join(["listed"] * (chosen is not None) + ["stored", "random", *SORTS])
            raise UsageError(f"sort is {known} or one of these after -, not {sort!r:.40}")
        elif chosen is None:
            positions = self._sorted.get((query.of, sort), lambda: _sorted(samples, sort))
        else:
            positions = _sorted(samples, sort, chosen)
        return lambda start, stop: positions[start:stop], len(positions)

    def _found(
        self, shown: SampleList, samples: AnySamples, order: Order, where: Where, clock: Callable[[], float]
    ) -> SampleList:
        """The list with what a search finds in time, and the URL that goes on where it ends."""
        search = Search(samples, where, shown.first)
        is_stored = shown.sort == "stored" and not shown.ids
        found = search.found(order, shown.total, clock() + _SEARCH_SECONDS, clock, is_stored=is_stored)
        rows = [_row(shown.query, samples, *each) for each in islice(found, ROWS)]
        place = search.place
        following = shown.query.url(place) if place < shown.total else ""
        remark = f"none of these has the field {', '.join(spell_field((name,)) for name in sorted(search.absent))}"
        return replace(
            shown,
            searched=place,
            rows=rows,
            following=following,
            is_unfinished=bool(following) and len(rows) < ROWS,
            remark=remark if search.absent and not rows and place > shown.first else shown.remark,
        )


def _row(query: ListQuery, samples: AnySamples, place: int, position: int) -> LinkedSample:
    """A row of a list, whose URL names the list if that is filtered, sorted or given."""
    row = row_of(samples[position], position)
    if not query.where and not query.ids and query.sort == "stored":
        return row
    return replace(row, url=query.sample_url(row.url, place))


def _column(where: str, offset: int | None) -> int | None:
    """The place of a problem in characters."""
    return None if offset is None else len(where.encode(errors="surrogatepass")[:offset].decode(errors="surrogatepass"))


def _sorted(samples: AnySamples, sort: str, chosen: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """The positions of the first samples in an order, or of those that are chosen; those without a value are left out.
    A shard after the other, so no more than its values are in memory.
    """
    fact, is_down = sort.removeprefix("-"), sort.startswith("-")
    if not isinstance(samples, CataloguedSamples) or not (fact == "duration" or isinstance(samples, DatasetSamples)):
        raise UsageError(f"these samples are not sorted by {fact}: of=samples are")
    positions, keys, start = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    wanted = None if chosen is None else np.sort(chosen)
    for number in range(len(samples.dataset.shards)):
        values = _values(samples, number, fact)
        known = np.flatnonzero(values >= 0)
        if wanted is not None:
            known = np.intersect1d(known, wanted - start, assume_unique=True)
        positions = np.concatenate([positions, start + known])
        keys = np.concatenate([keys, -values[known] if is_down else values[known]])
        if len(keys) > _SORTED:
            chosen = np.sort(np.argpartition(keys, _SORTED)[:_SORTED])
            positions, keys = positions[chosen], keys[chosen]
        start += len(values)
    found: NDArray[np.int64] = positions[np.argsort(keys, kind="stable")]
    return found


def _values(samples: CataloguedSamples, number: int, fact: str) -> NDArray[np.int64]:
    """A number for each sample of a shard by its catalog; negative where that has none."""
    if fact == "duration":
        return samples.lengths_in(SECONDS, number)
    found = np.zeros(samples.dataset.shards[number].samples, np.int64)
    table = samples.dataset.catalog(number).tables.get("shards" if fact == "size" else "segments")
    if table is not None:
        rows = np.flatnonzero((as_array(table.kind) != DIRECTORY) & (as_array(table.ordinal) != NO_SAMPLE))
        places = as_array(table.ordinal)[rows].astype(np.int64)
        if fact == "size":
            np.add.at(found, places, as_array(table.size)[rows].astype(np.int64))
        else:
            np.maximum.at(found, places, as_array(table.part)[rows].astype(np.int64) + 1)
    return found


def row_of(sample: Sample, position: int) -> LinkedSample:
    """A sample as it is listed: what cannot be read of it is left out."""
    text, duration = "", None
    with suppress(TouchfsError):
        text = _text_of(sample)
    with suppress(TouchfsError):
        duration = sample.known_duration if sample.coding is not None else None
    picture, kind = _picture_of(sample)
    cut = text if len(text) <= _TEXT else f"{text[:_TEXT]} …"
    seconds = "" if duration is None else format_seconds(duration)
    return LinkedSample(position, sample.key, cut, seconds, sample.segment_count, sample_url(sample), picture, kind)


def sample_url(sample: Sample) -> str:
    """The URL of the page of a sample: its name in the view without the extension, or its number if it has no file."""
    if sample.view == "shards":
        stem = sample.stem if isinstance(sample, CataloguedSample) else None
        return f"{OWN}sample/{url_of(sample.shard)}/{url_of(stem or f'{sample.ordinal:08d}')}"
    source, extension = f"?of={quote(sample.view)}", next(iter(sample), None)
    if extension is None:
        return f"{OWN}sample/{url_of(sample.shard)}/{sample.ordinal:08d}{source}"
    path = sample.path(extension)
    stem = os.path.dirname(path) if sample.view == "interleaved" else path.removesuffix(f".{extension}")
    return f"{OWN}sample/{url_of(sample.shard)}{url_of(stem.removeprefix(f'{sample.view}/{sample.shard}'))}{source}"


def _picture_of(sample: Sample) -> tuple[str, str]:
    """The URL of a picture of a sample, and its kind."""
    with suppress(TouchfsError):
        if image := next(filter(is_image, sample), None):
            return image_source(sample.path(image), image, sample.content(image).size), "image"
        if (sound := next(iter(recordings_among(sample)), None)) and not is_video(sound):
            return f"{OWN}wave/{url_of(sample.path(sound))}.svg?w=148", "wave"
    return "", ""


def image_source(path: str, extension: str, size: int, most: int = _SHOWN_BYTES) -> str:
    """What of an image a page shows: the file if browsers can, and it has at most so many bytes; else a small one, or
    "" if nothing here can make that.
    """
    if coding_of(extension) in SHOWN and size <= most:
        return url_of(path)
    return f"{OWN}thumb/{url_of(path)}.jpg" if _can_shrink() else ""


@cache
def _can_shrink() -> bool:
    return find_spec("PIL") is not None


def _text_of(sample: Sample) -> str:
    """The text of a sample, else what its JSON says, else the names of its files. Only the beginning is read."""
    if (name := sample.text_name) is not None:
        if name == "txt":
            content = sample.content(name)
            return bytes(content.read(0, min(content.size, 8 * _TEXT))).decode("utf-8", "replace")
        return sample.plain(name, _DECOMPRESSED).decode("utf-8", "replace")
    fields: Any = None
    if (name := sample.json_name) is not None and sample.content(name).size <= _READ:
        with suppress(TouchfsError, ValueError, RecursionError):
            fields = parse_json(sample.plain(name, _READ))
    if isinstance(fields, Mapping):
        known = next((fields[each] for each in ("text", "caption") if isinstance(fields.get(each), str)), None)
        return known if known is not None else ", ".join(_named(fields))
    return " ".join(sample)


def _named(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in [*fields.items()][:_COLUMNS]:
        if not isinstance(value, dict | list):
            yield f"{name}: {spelled_value(value)[:_TEXT]}"


def spelled_value(value: Any) -> str:
    """Show a value of JSON: a string without quotes, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
