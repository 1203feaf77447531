"""The page of a dataset: facts, statistics as cards, and its first samples.

No look indexes all of a large dataset: what is not indexed yet is not counted, and the page says so.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import isfinite
from shlex import quote
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import TouchfsError
from touchfs.core.progress import Progress, unshown
from touchfs.dataset import Dataset, IndexedShards, counted
from touchfs.dataset.recordings.recording_formats import RecordingFormat, RecordingFormats
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples
from touchfs.dataset.shard import Shard
from touchfs.explore.page import Bars, HistogramCard, Page, Part, Problem, TextTable
from touchfs.explore.recordings import format_seconds
from touchfs.format.image_size import ImageSize
from touchfs.media.extensions import is_recording
from touchfs.pages.thumbnails import first_images
from touchfs.select.concatenation import SetSamples, datasets_of
from touchfs.select.expression import spell_field
from touchfs.select.ids.names import open_file
from touchfs.select.selection import AnySamples, Selection, base_of
from touchfs.select.selector import Selector
from touchfs.select.survivors import survivors_directory
from touchfs.statistics import buckets
from touchfs.statistics.catalogs import TICKS, CatalogStatistics
from touchfs.statistics.images import image_sizes
from touchfs.statistics.stored import statistics_of
from touchfs.statistics.texts import SAMPLES, SPEED_STEPS, TextStatistics

# Shards are indexed for a look as long as they have together no more bytes: headers of a GB of tars take a second.
INDEXED_BYTES = 1 << 30
_ROWS, _CARDS, _VALUES, _CHARACTERS, _PROBLEMS = 10, 12, 10, 12, 5
_TEXT_SHOWN = 280
_BARS = 32
_TABLE_COLUMNS = 40
_COLUMNS = ("key", "duration", "text")
# Of a set in a notebook
_SET_ROWS, _SET_CARDS, _SET_TEXTS = 5, 4, 200


@dataclass(frozen=True, slots=True)
class SampleChoice:
    """Which samples of a dataset are shown: those for which an expression holds, and of them the first `take` ones."""

    where: str | None = None
    take: int | None = None

    def of(self, dataset: Dataset) -> AnySamples:
        """These samples. Raises UsageError for a bad expression."""
        found: AnySamples = DatasetSamples(dataset)
        if self.where is not None:
            found = Selector(dataset, survivors_directory(), open_ids=open_file).filtered(found, self.where)
        if self.take is None:
            return found
        return Selection(found, np.arange(min(self.take, len(found)), dtype=np.int64), f"take {self.take}")


ALL = SampleChoice()


class Overview:
    """The shards of a dataset that are known or small, what is counted of them, and their samples, or some of these."""

    def __init__(
        self,
        dataset: Dataset,
        positions: list[int] | None = None,
        progress: Progress = unshown,
        of: int | None = None,
        choice: SampleChoice = ALL,
    ) -> None:
        chosen = range(len(dataset.listed)) if positions is None else positions
        self.dataset = dataset
        self.wanted = len(chosen) if of is None else of
        self.shards = [dataset.shard(position) for position in _looked_at(dataset, list(chosen))]
        # One that cannot be read at all has no samples: it is no reason to show none of the others.
        shown = tuple(shard for shard in self.shards if shard.samples)
        items = dataset.interleaved if dataset.is_indexed else None
        index = IndexedShards(shown, "a look needs no keys", items)
        known = Dataset(dataset.source, shown, index, dataset.limits, index_again=dataset.index_again)
        self.samples = choice.of(known)
        self._choice = choice
        self._progress = progress

    @cached_property
    def catalogs(self) -> CatalogStatistics:
        """The statistics of all its shards, of which those that are not kept are counted now."""
        found, places = CatalogStatistics(), None if self._choice == ALL else self.places()
        for number, shard in enumerate(self.shards):
            with suppress(TouchfsError):
                if places is None:
                    found.merge(statistics_of(self.dataset, shard))
                else:
                    ordinals = places[1][places[0] == number]
                    found.merge(CatalogStatistics.of(self.dataset.catalog_of(shard), ordinals))
            self._progress(number + 1, len(self.shards))
        return found

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of the shards of all its samples, and their ordinals in these."""
        _, positions = base_of(self.samples)
        ends = np.cumsum([shard.samples for shard in self.shards])
        numbers = np.searchsorted(ends, positions, "right")
        return numbers, positions - np.concatenate([[0], ends])[numbers]

    @cached_property
    def has_segments(self) -> bool:
        """True if a sample has segments."""
        return any(shard.segments for shard in self.shards)

    @property
    def is_whole(self) -> bool:
        """True if all shards have been counted."""
        return len(self.shards) == self.wanted

    def page(self, title: str, most_texts: int = SAMPLES, cards_shown: int = _CARDS, rows: int = _ROWS) -> Page:
        """The page. Reads the texts of random samples."""
        basis, cards = self.cards(most_texts)
        pictures = first_images(self.samples) if rows else ()
        facts = [*self.facts(f"`touchfs index {quote(self.dataset.source)}` indexes the others"), *basis]
        parts = [*cards[:cards_shown], *pictures, *self._first_samples(rows), *self.problems()]
        return Page(title, self.place(), facts, parts)

    def cards(self, most_texts: int = SAMPLES, clock: Callable[[], float] = monotonic) -> tuple[list[str], list[Part]]:
        """The cards, and a line that says of which samples the texts are, if not of all. Reads these texts."""
        texts = TextStatistics.read(self.samples, most_texts, clock)
        basis = f"texts of {texts.samples:,} random samples" if texts.samples < texts.of else ""
        shown = [*self._cards(texts, image_sizes(self.samples, clock) if most_texts else None)]
        return [basis] * bool(basis and (texts.lengths.counts or texts.fields)), shown

    def place(self) -> str:
        """The kinds of its shards, and their number."""
        kinds = ", ".join(sorted({shard.container.name for shard in self.shards}))
        return f"{kinds} · {counted(self.wanted, 'shard')}"

    def facts(self, advice: str) -> Iterator[str]:
        """What is known without statistics. If not all shards are counted, also the advice how they come to be."""
        if self._choice != ALL:
            yield from self._facts_of_choice()
            return
        shards = self.shards
        samples, timed = sum(shard.samples for shard in shards), sum(shard.timed for shard in shards)
        seconds = sum(shard.seconds for shard in shards)
        segments, damaged = sum(shard.segments for shard in shards), sum(shard.damaged for shard in shards)
        facts = [f"{samples:,} samples" if samples != 1 else "1 sample"]
        if timed:
            facts.append(_seconds(seconds))
        if unknown := sum(shard.unmeasured for shard in shards if _may_have_recordings(shard)):
            facts.append(f"{counted(unknown, 'recording')} of unknown length")
        facts += [f"{segments:,} segments"] * bool(segments)
        facts.append(_bytes(sum(shard.size for shard in shards)))
        facts += [f"{damaged:,} damaged"] * bool(damaged)
        yield " · ".join(facts)
        if not self.is_whole:
            yield f"{len(shards):,} of {self.wanted:,} shards are indexed, and counted here: {advice}"

    def _facts_of_choice(self) -> Iterator[str]:
        found, total = self.catalogs, sum(shard.samples for shard in self.shards)
        facts = [f"{len(self.samples):,} of {total:,} samples"]
        facts += [_seconds(found.durations.total / TICKS)] * bool(found.durations.counts)
        facts += [f"{found.segments.total:,} segments"] * bool(found.segments.counts)
        facts.append(_bytes(sum(size for _, size in found.files.values())))
        yield " · ".join(facts)
        take = "" if self._choice.take is None else f"the first {self._choice.take:,}"
        yield " ".join(filter(None, [take, f"where {self._choice.where}" if self._choice.where else ""]))

    def _cards(self, texts: TextStatistics, sizes: Counter[ImageSize] | None) -> Iterator[Part]:
        catalogs = self.catalogs
        yield from _number_card("Duration", catalogs.durations, "s", TICKS, "duration")
        yield from _number_card("Segment length", catalogs.segment_lengths, "s", TICKS, "duration", "segments")
        yield from _number_card("Segments of a recording", catalogs.segments, "segments", fact="segments")
        yield from _recordings_card(catalogs.recordings)
        yield from _number_card("Text", texts.lengths, "characters", fact="characters")
        yield from _number_card("Speed", texts.speeds, "characters a second", SPEED_STEPS)
        yield from _files_card(catalogs.files)
        if sizes:
            yield _sizes_card(sizes)
        for name, counts in texts.fields.items():
            if name in texts.numbers and (counts is None or len(counts) > _VALUES):
                yield _numbers_card(name, np.asarray(texts.numbers[name]))
            elif counts and (len(counts) < texts.samples or len(counts) == 1):
                yield _values_card(name, counts, name in texts.numbers)
        if texts.characters:
            yield _characters_card(texts)
        if types := self._column_types():
            yield _columns_table(types, texts)

    def _column_types(self) -> dict[str, str]:
        """The types of the columns of the first table that can be read."""
        for shard in self.shards:
            with suppress(TouchfsError):
                if types := shard.known.column_types:
                    return types
        return {}

    def _first_samples(self, most: int) -> Iterator[Part]:
        rows = [row_of(sample) for sample in islice(iter(self.samples), most)]
        if rows:
            yield table_of(rows)

    def problems(self) -> Iterator[Part]:
        """The first of its shards that are damaged."""
        broken = [shard for shard in self.shards if shard.reports]
        for shard in broken[:_PROBLEMS]:
            reason = next(iter(shard.reports.values())).strip().splitlines()[0]
            yield Problem(shard.name, reason.replace(shard.path, os.path.basename(shard.path)))
        if len(broken) > _PROBLEMS:
            yield Problem("and", counted(len(broken) - _PROBLEMS, "more shard"))


def set_page(samples: SetSamples, described: str) -> Page:
    """The page of a set in a notebook: statistics of its dataset, and its own first samples. Few texts are read."""
    datasets, own = datasets_of(samples), [row_of(samples[each]) for each in range(min(_SET_ROWS, len(samples)))]
    table = table_of(own)
    if len(datasets) != 1:
        return Page("Dataset", "", [described], [table])
    page = Overview(datasets[0]).page(title_of(datasets[0]), _SET_TEXTS, _SET_CARDS, 0)
    return replace(page, facts=[*page.facts, described], parts=[*page.parts, *([table] if own else [])])


def title_of(dataset: Dataset) -> str:
    """The name of a dataset as the title of a page."""
    return os.path.basename(dataset.source.rstrip("/")) or dataset.source


def _looked_at(dataset: Dataset, positions: list[int]) -> list[int]:
    """The positions of shards that are indexed, and of the first others that are small; of one at least."""
    left, found = INDEXED_BYTES, list[int]()
    for position in positions:
        if not dataset.has_index(position):
            left -= sum(fingerprint.size for fingerprint in dataset.listed[position].files.values())
            if left < 0 and found:
                continue
        found.append(position)
    return found


def _number_card(
    title: str, found: buckets.Histogram, unit: str, scale: int = 1, fact: str = "", of: str = "samples"
) -> Iterator[Part]:
    """The card of a histogram. `fact` is the name of its numbers in filters, if they have one."""
    if not found.counts or not found.most:
        return
    counts, width = found.bars()
    middle, high = found.quantile(0.5) / scale, found.quantile(0.99) / scale
    words = f"median {middle:.3g} {unit}, 99 % up to {high:.3g}"
    end = width * len(counts) / scale
    filters = _ranges(fact, [each * width / scale for each in range(len(counts))]) if fact else []
    yield HistogramCard(title, words, counts, ("0", f"{end:.4g} {unit}"), filters, of)


def _ranges(fact: str, starts: Sequence[float]) -> list[str]:
    """Expressions for the ranges that begin at these numbers. The last one has no end."""
    ends = [f" and {fact} < {_exactly(end)}" for end in starts[1:]]
    return [f"{fact} >= {_exactly(start)}{end}" for start, end in zip(starts, [*ends, ""], strict=True)]


def _exactly(number: float) -> str:
    return repr(int(number) if number.is_integer() else number)


def _values_card(name: str, counts: Counter[str], may_be_numbers: bool) -> Bars:
    """The card of the values of a field of the JSON."""
    total, listed = counts.total(), counts.most_common(_VALUES)
    values = [(value, count, f"{100 * count / total:.1f} %") for value, count in listed]
    filters = [f"{spell_field((name,))} == {_literal(value, may_be_numbers)}" for value, _ in listed]
    return Bars(name, counted(len(counts), "value"), values, filters)


def _literal(value: str, may_be_number: bool) -> str:
    """A value in a filter: numbers and truth values are without quotes."""
    if value in ("True", "False"):
        return value.lower()
    if may_be_number:
        with suppress(ValueError):
            if isfinite(float(value)):
                return value
    return json.dumps(value, ensure_ascii=False)


def _numbers_card(title: str, numbers: NDArray[np.float64]) -> HistogramCard:
    low, middle, high = np.percentile(numbers, [0, 50, 99.5]).tolist()
    bars = min(len(np.unique(numbers)), _BARS)  # more than there are values would leave gaps
    counts, edges = np.histogram(np.minimum(numbers, high), bars, (low, high if high > low else low + 1))
    words = f"median {middle:.3g}, from {low:.3g} to {numbers.max():.3g}"
    filters = _ranges(spell_field((title,)), edges[:-1].tolist())
    return HistogramCard(title, words, counts.tolist(), (f"{low:.3g}", f"≥ {high:.3g}"), filters)


def _recordings_card(recordings: RecordingFormats) -> Iterator[Bars]:
    total, listed = recordings.count, recordings.counts.most_common(_VALUES)
    if total:
        values = [(_format_words(each), count, f"{100 * count / total:.1f} %") for each, count in listed]
        filters = [_is_format(each) if each.rate and each.channels else "" for each, _ in listed]
        yield Bars("Recordings", counted(len(recordings.counts), "format"), values, filters)


def _is_format(recording: RecordingFormat) -> str:
    return " and ".join(f"{name} == {json.dumps(value)}" for name, value in recording._asdict().items())


def _format_words(recording: RecordingFormat) -> str:
    rate = "of unknown rate" if recording.rate is None else f"{recording.rate / 1000:g} kHz"
    channels = {None: "", 1: "mono", 2: "stereo"}.get(recording.channels, f"{recording.channels} channels")
    return " ".join(filter(None, [recording.coding, rate, channels]))


def _files_card(counted_files: dict[str, tuple[int, int]]) -> Iterator[Bars]:
    """The card of files by extension, by their bytes; by their number, where catalogs do not have their sizes."""
    has_sizes = any(size for _, size in counted_files.values())
    files = sorted(counted_files.items(), key=lambda item: -item[1][has_sizes])[:_VALUES]
    if files:
        values = [
            (name or "others", each[has_sizes], f"{each[0]:,} · {_bytes(each[1])}" if each[1] else f"{each[0]:,}")
            for name, each in files
        ]
        filters = [f"{spell_field(('size', name))} exists" if name else "" for name, _ in files]
        yield Bars("Files", "by their bytes" if has_sizes else "by their number", values, filters)


def _sizes_card(sizes: Counter[ImageSize]) -> Bars:
    total, listed = sizes.total(), sizes.most_common(_VALUES)
    middle = sorted(sizes.elements(), key=lambda size: size.width * size.height)[total // 2]
    words = f"{counted(len(sizes), 'size')} of {counted(total, 'image')} · median {middle.width:,} × {middle.height:,}"
    values = [(f"{size.width:,} × {size.height:,}", count, f"{100 * count / total:.1f} %") for size, count in listed]
    return Bars("Image size", words, values)


def _columns_table(types: dict[str, str], texts: TextStatistics) -> TextTable:
    """The columns of a table. How often they are null is known of those that the JSON of a row has."""
    rows = []
    for name, kind in [*types.items()][:_TABLE_COLUMNS]:
        is_known = name in texts.fields or name in texts.nulls
        rows.append((name, kind, f"{100 * texts.nulls[name] / texts.samples:.1f} %" if is_known else ""))
    if len(types) > _TABLE_COLUMNS:
        rows.append((f"and {len(types) - _TABLE_COLUMNS:,} more", "", ""))
    return TextTable("Columns", ("column", "type", "null"), rows)


def _characters_card(texts: TextStatistics) -> Bars:
    total = texts.characters.total()
    strange = {each: count for each, count in texts.characters.items() if unicodedata.category(each) in ("Cc", "Cf")}
    listed = dict(texts.characters.most_common(_CHARACTERS)) | {
        each: count for each, count in islice(strange.items(), _CHARACTERS) if each not in "\n\t"
    }
    once = sum(1 for count in texts.words.values() if count == 1)
    more = "more than " if texts.has_more_words else ""
    plural = "s" * (len(texts.words) != 1)
    words = f"{len(texts.characters):,} different · {more}{len(texts.words):,} word{plural}, {once:,} seen once"
    values = [(_character(each), count, f"{100 * count / total:.1f} %") for each, count in listed.items()]
    filters = [f"text contains {json.dumps(each, ensure_ascii=False)}" for each in listed]
    return Bars("Characters", words, values, filters)


def _character(character: str) -> str:
    is_seen = character.isprintable() and not character.isspace() and not unicodedata.combining(character)
    return character if is_seen else "space" if character == " " else f"U+{ord(character):04X}"


def table_of(rows: Sequence[Sequence[str]]) -> TextTable:
    """The table of the first samples, without columns that are empty."""
    full = [number for number in range(len(_COLUMNS)) if any(row[number] for row in rows)]
    return TextTable("First samples", [_COLUMNS[each] for each in full], [[row[each] for each in full] for row in rows])


def row_of(sample: Sample) -> tuple[str, str, str]:
    """The key, the duration and the text of a sample, for a table."""
    duration, text = None, None
    with suppress(TouchfsError):
        duration = sample.known_duration if sample.coding is not None else None
    with suppress(TouchfsError):
        text = sample.text
        if text is None and sample.json_name is not None and isinstance(fields := sample.json(), dict):
            text = next((str(fields[name]) for name in ("text", "caption") if isinstance(fields.get(name), str)), None)
    shown = text if text is not None else " ".join(sample)
    return sample.key, "" if duration is None else format_seconds(duration), shown[:_TEXT_SHOWN]


def _may_have_recordings(shard: Shard) -> bool:
    """False if no file of a shard is a recording: tables count all rows as unmeasured until all are read."""
    suffixes = shard.endings.suffixes
    return not suffixes or any(map(is_recording, suffixes))


def _seconds(seconds: float) -> str:
    return format_seconds(seconds) if seconds < 3600 else f"{seconds / 3600:,.1f} hours"


def _bytes(size: int) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:,} bytes"
