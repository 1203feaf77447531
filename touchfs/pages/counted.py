"""What is known of a dataset for pages: the shards that are indexed by now, and statistics counted in a thread.

No page waits for more than a moment. The thread begins when a page asks for statistics, and works while no page is
being made: two threads of Python would slow each other down.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic, sleep

from touchfs.core.errors import SourceError, TouchfsError
from touchfs.core.token import State
from touchfs.dataset import Dataset
from touchfs.explore.linked import ListQuery, SampleList
from touchfs.explore.page import Page, Part
from touchfs.pages.given import Chosen, GivenSamples
from touchfs.pages.listing import Lists
from touchfs.pages.overview import INDEXED_BYTES, Overview, title_of
from touchfs.posix.threads import start_thread

# The first look at a small dataset has its statistics, too.
_PATIENCE_SECONDS = 0.05
# A list waits so long for the first shards of a dataset that was never indexed.
_FIRST_SECONDS = 2.0
_ADVICE = "others are indexed when somebody looks into them"
_MOST_CARDS = 12
_FIRST = ListQuery()
# Instead of a number of shards: cards of texts are still missing.
_UNFINISHED = -1
_log = logging.getLogger(__name__)


class CountedDataset:
    """The overview of a dataset, for any number of threads."""

    def __init__(self, dataset: Dataset, states: Mapping[str, State]) -> None:
        self.dataset = dataset
        self.title = title_of(dataset)
        self._lock = threading.Lock()
        self._known: tuple[Overview, Lists] | None = None
        self._has_all = False
        self._given = GivenSamples(states)
        # For how many shards, the line about texts, and the cards.
        self._cards: tuple[int, Sequence[str], Sequence[Part]] = _UNFINISHED, (), ()
        self._done = threading.Event()
        self._is_counting = False
        self._pages = 0

    @contextmanager
    def _page_is_made(self) -> Iterator[None]:
        """Let nothing be counted meanwhile."""
        with self._lock:
            self._pages += 1
        try:
            yield
        finally:
            with self._lock:
                self._pages -= 1

    def overview(self) -> Overview:
        """The shards that are indexed by now. Indexes none."""
        return self._looked()[0]

    def _looked(self) -> tuple[Overview, Lists]:
        dataset, listed = self.dataset, range(len(self.dataset.listed))
        positions = [*listed] if dataset.is_indexed else [each for each in listed if dataset.has_index(each)]
        known = self._known
        if known is None or len(known[0].shards) != len(positions) or dataset.is_indexed != self._has_all:
            self._has_all = dataset.is_indexed
            overview = Overview(dataset, positions, of=len(dataset.listed))
            known = self._known = overview, Lists(overview.samples.dataset)
        return known

    def samples(self, query: ListQuery = _FIRST, first: int = 0, known: int = 0) -> SampleList:
        """A list of its samples, as far as they are known. A search of `known` shards begins again if these are not
        all that are known by now: places are others then. Raises as `Lists.page`.
        """
        overview, lists = self._looked()
        if not overview.is_whole and self._cards[0] != len(overview.shards):
            self._begin()  # which indexes small datasets
            if not overview.shards:
                self._done.wait(_FIRST_SECONDS)
                overview, lists = self._looked()
        begins_again = known not in (0, len(overview.shards))
        chosen = self._chosen(query, lists)
        with self._page_is_made():
            found = lists.page(query, 0 if begins_again else first, chosen and chosen.positions)
        remarks = [found.remark] if found.remark else []
        if chosen is not None:
            compared = [(words, count, listed.url()) for words, count, listed in chosen.compared]
            found = replace(found, is_counting=chosen.is_unfinished, compared=compared)
            remarks += chosen.remarks
        if begins_again:
            remarks.append("more shards are indexed now, so the search begins again")
        if not overview.is_whole:
            remarks.append(f"{len(overview.shards):,} of {overview.wanted:,} shards are indexed")
            if query.where and found.following:
                found = replace(found, following=f"{found.following}&known={len(overview.shards)}")
        sources = self._sources(overview, query.of)
        return replace(found, sources=sources, given=self._given.names(), remark=" · ".join(remarks))

    def beside(self, query: ListQuery, place: int) -> tuple[str, str]:
        """The URLs of the samples beside a place of a list. Raises as `Lists.beside`."""
        lists = self._looked()[1]
        chosen = self._chosen(query, lists)
        with self._page_is_made():
            return lists.beside(query, place, chosen and chosen.positions)

    def _chosen(self, query: ListQuery, lists: Lists) -> Chosen | None:
        """The samples that a list names, if it does. Raises UsageError."""
        return self._given.chosen(query, self.dataset, lists.samples(query.of)) if query.ids else None

    def _sources(self, overview: Overview, of: str) -> Sequence[str]:
        """What lists can be of."""
        has_items = self.dataset.is_indexed and self.dataset.interleaved is not None
        named = ["samples", *["segments"] * overview.has_segments, *["interleaved"] * has_items]
        return named if of in named else [*named, of]

    def page(self) -> tuple[Page, bool]:
        """The page of the dataset without samples, and whether something of it is still being counted."""
        known = self.overview()
        if self._cards[0] != len(known.shards):
            self._begin()
            self._done.wait(_PATIENCE_SECONDS)
            known = self.overview()
        counted, basis, cards = self._cards
        facts = [*known.facts(_ADVICE), *basis]
        page = Page(self.title, known.place(), facts, [*cards, *known.problems()])
        return page, counted != len(known.shards)

    def _begin(self) -> None:
        """Count in a thread, unless one does."""
        with self._lock:
            if self._is_counting:
                return
            self._is_counting = True
            self._done.clear()
        try:
            start_thread(self._count, name="counting")
        except SourceError:
            self._is_counting = False
            raise

    def _count(self) -> None:
        try:
            overview = Overview(self.dataset)  # which indexes small ones
            if overview.is_whole and sum(shard.size for shard in overview.shards) <= INDEXED_BYTES:
                with suppress(TouchfsError):
                    self.dataset.indexed  # noqa: B018  keys and interleaved samples are found soon, too
            self._cards = _UNFINISHED, *overview.cards(0)
            basis, cards = overview.cards(clock=self._turn)
            self._cards = len(overview.shards), basis, cards[:_MOST_CARDS]
        except Exception as error:  # noqa: BLE001  the page stands without cards, and says so
            _log.error("statistics cannot be counted: %r", error, exc_info=_log.isEnabledFor(logging.DEBUG))
            self._cards = len(self.overview().shards), ["statistics cannot be counted: the log says why"], ()
        finally:
            self._is_counting = False
            self._done.set()

    def _turn(self) -> float:
        """The time, once no page is being made."""
        while self._pages:
            sleep(0.001)
        return monotonic()
