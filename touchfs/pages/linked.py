"""The page of a sample at a server: its pictures and files are at URLs, and made when a browser asks for them."""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice, takewhile
from urllib.parse import urlencode

import numpy as np

from touchfs.catalog.table import DIRECTORY, NO_SAMPLE, Table
from touchfs.core.control_characters import quote_name
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError, UsageError
from touchfs.core.extent import Content, drive
from touchfs.core.json_text import parse_json
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.sample import JSON_NAMES
from touchfs.dataset.shown_segments import (
    SEGMENTS_SHOWN,
    SegmentTimes,
    segments_between,
    segments_of,
    times_of_segments,
)
from touchfs.explore.files import TEXTS, ContentOf, PictureSize, part_of
from touchfs.explore.html import SIZE, marks
from touchfs.explore.linked import OWN, SamplePage, url_of
from touchfs.explore.page import (
    LinkedFiles,
    LinkedImage,
    LinkedRecording,
    LinkedSegment,
    LinkedSegments,
    LinkedVideo,
    Map,
    Page,
    Part,
    Problem,
    Text,
    TextTable,
)
from touchfs.explore.recordings import WHOLE_SECONDS, SoundFacts, Span, describe, draw
from touchfs.form.compressed_content import plain_extension
from touchfs.format.image_size import image_size_reads
from touchfs.indexing.report import reasons
from touchfs.limits import Limits
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.extensions import can_be_cut, coding_of, is_image, is_video
from touchfs.pages.listing import SHOWN, image_source, spelled_value
from touchfs.tree.tree import Tree
from touchfs.view.segments import WAV, rows_of_segments

SLICES = "slices/all"
# Browsers play these as they are stored; what touchfs decodes is a WAV.
_PLAYED = frozenset({"wav", "flac", "mp3", "ogg", "oga", "opus", "aac", "m4a"})
_VIDEOS = frozenset({"mp4", "webm", "mov"})
# A recording of at most so many bytes of PCM is read for its loudness.
_MEASURED_BYTES = 1 << 23
_COLUMNS = 100
_PARTS, _FILES, _ITEMS, _NAMESAKES, _CELLS = 40, 200, 1000, 10_000, 256
_ENDINGS = ("wav", "mp4", "txt", "json")
_IMAGE_BYTES = 8 << 20
# More segments in the drawn part of a recording are a strip of so many columns.
_IN_LANES, _DENSITY = 300, 240
_SIZE = PictureSize(SIZE.columns, 1, 1, SIZE.rows)
# Links from an overview to parts of a recording, and the shortest part that links lead to
_LINKED_PARTS, _SHORTEST = 12, 0.02
# Frames of a video that are shown: where they are in it
FRAMES = ("begin", "20 %", "40 %", "60 %", "80 %", "end")


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a sample: its name on the page, its path in the tree, its content. `whole` is the path of all of a
    recording as a WAV, if there is one.
    """

    name: str
    path: str
    content: ContentOf
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a sample is asked for: its segments from the number `first` on, and the part of its recording, None for
    what is shown at first. `kept` are the fields that links to other parts keep.
    """

    first: int = 0
    span: Span | None = None
    kept: Mapping[str, str] = field(default_factory=dict)

    def url(self, here: str, **fields: str) -> str:
        """The URL of a page with these fields."""
        return f"{here}?{urlencode({**fields, **self.kept}, errors='replace', safe=',/')}".removesuffix("?")


def sample_at(tree: Tree, of: str, shard: str, name: str, pool: DecodePool, asked: Asked | None = None) -> SamplePage:
    """The page of a sample: of a shard by its name in `shards/` without the extension, or by its number; or that of
    another view, `of`. Raises NotFoundError, UsageError for a part that is not in the recording, and the errors of
    `Tree`.
    """
    asked = asked or Asked()
    if of != "samples":
        return _at_path(tree, of, f"{of}/{shard}/{name}", pool, replace(asked, kept={"of": of, **asked.kept}))
    position = tree.dataset.by_name.get(os.fsencode(shard))
    if position is None:
        raise NotFoundError(f"there is no shard {quote_name(shard)!r}")
    entry = tree.resolve(tree.dataset.listed[position].path_in("shards"))
    found = tree.stored(entry.inode)
    if found is None:
        raise NotFoundError(f"there is no shard {quote_name(shard)!r}")
    _, opened, table, _ = found
    ordinal = _ordinal_of(table, os.fsencode(name))
    if ordinal is None and name.isascii() and name.isdecimal() and int(name) < opened.shard.samples:
        ordinal = int(name)
    if ordinal is None:
        raise NotFoundError(f"there is no sample {quote_name(name)!r} in {quote_name(shard)!r}")
    return _of_shard(opened, table, ordinal, pool, asked)


def _ordinal_of(table: Table, name: bytes) -> int | None:
    """The number of the sample whose files have this path without the extension."""
    components, row = name.split(b"/"), 0
    last = components.pop()
    for each in components:
        found = table.find(row, each)
        if found is None or table.kind[found] != DIRECTORY:
            return None
        row = found
    for child in _called(table, table.children(row), last):
        inner = table.children(child) if table.kind[child] == DIRECTORY else range(child, child + 1)
        for file in inner[:1]:
            path = table.path(file)
            is_file = table.kind[file] != DIRECTORY and table.ordinal[file] != NO_SAMPLE
            if is_file and path[: len(path) - table.suffix[file]] == name:
                return int(table.ordinal[file])
    return None


def _called(table: Table, children: range, name: bytes) -> Iterator[int]:
    """Rows that are called so, with any extension. Names such as `name-1` are between these, and may be many."""
    exact = table.search(children, name)
    if exact is not None:
        yield exact
    dotted = name + b"."
    first = bisect_left(children, dotted, key=table.name)
    yield from takewhile(lambda row: table.name(row).startswith(dotted), children[first : first + _NAMESAKES])


def _of_shard(opened: OpenShard, table: Table, ordinal: int, pool: DecodePool, asked: Asked) -> SamplePage:
    shard, above = opened.shard, opened.shard.path_in("shards")
    rows = {table.extension(row): row for row in table.files(ordinal)}
    files = [
        _File(name, f"{above}/{path}", partial(opened.content, table, row), f"{SLICES}/{shard.name}/{_stem(path)}.wav")
        for name, row in rows.items()
        if (path := os.fsdecode(table.path(row)))
    ]
    key = table.key(next(iter(rows.values()))) if rows else f"{ordinal:08d}"
    damage = [
        Problem("damaged", _without_path(line, shard.path))
        for report in shard.reports.values()
        for line in reasons(report)
        if line.startswith(f"sample {ordinal} (")
    ]
    here = _url_of(opened, table, ordinal)
    segments = partial(_segments, opened, ordinal, asked, here)
    zoom = _Zoom(here, asked)
    parts = [*damage, *_parts(files, segments, opened.limits, pool, zoom, is_row=shard.known.is_table)]
    place = f"{shard.name} · {ordinal + 1:,} of {shard.samples:,}"
    previous = _url_of(opened, table, ordinal - 1) if ordinal else ""
    following = _url_of(opened, table, ordinal + 1) if ordinal + 1 < shard.samples else ""
    return SamplePage(Page(key, place, (), parts), previous, following)


def _stem(path: str) -> str:
    return os.path.splitext(path)[0]


def _without_path(line: str, path: str) -> str:
    return line.replace(path, os.path.basename(path))


def _url_of(opened: OpenShard, table: Table, ordinal: int) -> str:
    rows = table.files(ordinal)
    name = f"{ordinal:08d}"
    if rows:
        path = table.path(rows[0])
        name = os.fsdecode(path[: len(path) - table.suffix[rows[0]]])
    return f"{OWN}sample/{url_of(opened.shard.name)}/{url_of(name)}"


def _segments(opened: OpenShard, ordinal: int, asked: Asked, here: str, drawn: Span | None) -> LinkedSegments | None:
    """Segments of a recording of which a span is drawn, or nothing: those in the part that is asked for, else those
    from a number on.
    """
    table, above = opened.tables.get("segments"), opened.shard.path_in("segments")
    total = 0 if table is None else table.parts(ordinal)
    density, inside = list[int](), None
    if drawn is not None and total:
        timed = times_of_segments(opened, ordinal)
        density = _density(timed, *drawn)
        if asked.span is not None or not density:
            inside = segments_between(opened, ordinal, timed, *drawn, _IN_LANES)
    of_part = inside if asked.span is not None else None
    shown = of_part or segments_of(opened, ordinal, asked.first)
    if table is None or shown is None:
        return None
    listed = []
    for each in shown.listed[:SEGMENTS_SHOWN]:
        rows = rows_of_segments(table, ordinal, each.number, each.number + 1)[each.number]
        urls = [(ending, url_of(f"{above}/{os.fsdecode(table.path(row))}")) for ending, row in rows.items()]
        listed.append(LinkedSegment(each, next((url for name, url in urls if name == WAV), ""), urls))
    directory = os.path.dirname(os.fsdecode(table.path(int(table.first_files(np.array([ordinal]))[0]))))
    lanes = inside.listed if inside is not None and not density else ()
    place = url_of(f"{above}/{directory}/")
    found = LinkedSegments(listed, shown.count, place, lanes, density)
    if of_part is not None:
        return replace(found, all=total)
    pages = max(min(asked.first, total) - SEGMENTS_SHOWN, 0), asked.first + SEGMENTS_SHOWN
    previous, following = (f"{asked.url(here, segments=str(each))}#segment-{each}" for each in pages)
    return replace(found, previous=previous if asked.first else "", following=following if pages[1] < total else "")


def _density(timed: SegmentTimes, start: float, end: float) -> list[int]:
    """How many segments there are in each part of the seconds that are drawn; [] if lanes have room for them."""
    times, step = timed.times[timed.between(start, end)], timed.step
    if len(times) * step <= _IN_LANES:
        return []
    places = np.clip((times - start) / (end - start) * _DENSITY, 0, _DENSITY)
    first = np.minimum(places[:, 0].astype(np.int64), _DENSITY - 1)
    last = np.maximum(np.ceil(places[:, 1]).astype(np.int64), first + 1)
    changes = np.bincount(first, minlength=_DENSITY + 1) - np.bincount(last, minlength=_DENSITY + 1)
    return [int(each) * step for each in np.cumsum(changes[:-1])]


def _at_path(tree: Tree, of: str, path: str, pool: DecodePool, asked: Asked) -> SamplePage:
    """The page of what a view other than `shards/` has under a name: a directory of items, or files of one stem."""
    found, is_directory = dict[str, _File](), False
    with suppress(NotFoundError):
        entry = tree.resolve(path)
        is_directory = entry.is_directory
        for name, child, _ in islice(tree.entries(entry.inode), _ITEMS) if is_directory else ():
            if not child.is_directory:
                text = os.fsdecode(name)
                found[text] = _File(text, f"{path}/{text}", partial(tree.content, child.inode))
    if not found:
        for ending in _ENDINGS:
            with suppress(NotFoundError):
                entry = tree.resolve(f"{path}.{ending}")
                found[ending] = _File(ending, f"{path}.{ending}", partial(tree.content, entry.inode))
    if not found:
        raise NotFoundError(f"there is no such sample in {quote_name(of)}")
    zoom = _Zoom(f"{OWN}sample/{url_of(path.removeprefix(f'{of}/'))}", asked)
    parts = [*_parts([*found.values()], None, tree.dataset.limits, pool, zoom, in_order=is_directory)]
    place, title = os.path.split(path)
    return SamplePage(Page(title, place, (), parts), "", "")


def _parts(
    files: list[_File],
    segments: Callable[[Span | None], LinkedSegments | None] | None,
    limits: Limits,
    pool: DecodePool,
    zoom: _Zoom | None,
    *,
    in_order: bool = False,
    is_row: bool = False,
) -> Iterator[Part]:
    shown = [each for each in files if _kind(each.name) is not None]
    if not in_order:
        shown.sort(key=lambda each: str(_kind(each.name)))
    for each in shown[:_PARTS] if not in_order else shown:
        is_sound = _kind(each.name) == "0 sound"
        yield (part := _part(each, limits, pool, zoom if is_sound else None, is_row=is_row))
        if is_sound:
            zoom = None  # of the first one alone
        if segments is not None and is_sound:
            drawn = (part.start, part.start + part.drawn) if isinstance(part, LinkedRecording) and part.drawn else None
            yield from filter(None, [segments(drawn)])
            segments = None
    if segments is not None:
        yield from filter(None, [segments(None)])
    yield LinkedFiles(
        [(each.name, _size(each.content), url_of(each.path)) for each in files[:_FILES]], len(files[_FILES:])
    )


def _kind(name: str) -> str | None:
    """What a file is shown as, in the order of a page; None for one that is not shown."""
    last = coding_of(plain_extension(name))
    if is_video(name):
        return "1 video"
    if can_be_cut(name):
        return "0 sound"
    if is_image(name):
        return "2 image"
    if last in ("npy", "npz"):
        return "4 array"
    if last in TEXTS:
        return "5 json" if last == "json" else "3 text"
    return None


def _part(file: _File, limits: Limits, pool: DecodePool, zoom: _Zoom | None, *, is_row: bool) -> Part:
    try:
        match _kind(file.name):
            case "0 sound":
                return _recording(file, limits, pool, zoom)
            case "1 video":
                return _video(file)
            case "2 image":
                return _image(file)
            case "5 json" if is_row or file.name in JSON_NAMES[1:]:
                return _row(file, limits)
    except UsageError:
        raise
    except TouchfsError as error:
        return Problem(file.name, error.message)
    part = part_of(file.name, file.content, _SIZE, limits)
    return _linked_map(file, part) if isinstance(part, Map) else part


def _video(file: _File) -> Part:
    is_played, url = coding_of(file.name) in _VIDEOS, url_of(file.path)
    facts = f"{file.content().size:,} bytes" + ": browsers do not play it" * (not is_played)
    frames = [(name, f"{OWN}frame/{url}.jpg?n={number}") for number, name in enumerate(FRAMES)]
    return LinkedVideo(file.name, facts, url, frames if _has_frames() else (), is_played)


@cache
def _has_frames() -> bool:
    return find_spec("av") is not None and find_spec("PIL") is not None


def _image(file: _File) -> Part:
    content = file.content()
    facts, known = f"{content.size:,} bytes", drive(image_size_reads(content.size), content)
    if known is not None:
        facts = f"{known.width:,} × {known.height:,} · {facts}"
    elif coding_of(file.name) in SHOWN:
        raise FormatError("not an image, or damaged: its header has no size")
    source = image_source(file.path, file.name, content.size, _IMAGE_BYTES)
    wide = f"{source}?w=1200" if source.startswith(OWN) else source
    return LinkedImage(file.name, facts, url_of(file.path), wide)


def _linked_map(file: _File, part: Map) -> Part:
    return LinkedImage(part.name, part.facts, url_of(file.path), f"{OWN}array/{url_of(file.path)}.png")


def _recording(file: _File, limits: Limits, pool: DecodePool, zoom: _Zoom | None) -> Part:
    content = file.content()
    span = zoom.asked.span if zoom is not None else None
    sound = describe(content, pool, limits, span)
    facts = sound.facts
    if coding_of(file.name) == WAV and content.size <= _MEASURED_BYTES:
        facts = draw(file.name, content, _COLUMNS, limits, pool=pool).facts
    url = url_of(file.path)
    is_played = coding_of(file.name) in _PLAYED or not file.whole
    query = "" if span is None else f"&t={spelled(span)}"
    found = LinkedRecording(
        file.name,
        facts,
        sound.seconds,
        sound.drawn,
        sound.remark,
        url,
        url if is_played else url_of(file.whole),
        f"{OWN}wave/{url}.svg?w=1200{query}",
        f"{OWN}spectrogram/{url}.png?w=1200{query}",
        marks(sound.rate),
        sound.channels,
        sound.start,
    )
    return found if zoom is None else zoom.linked(found, sound, content, pool, limits)


def spelled(span: Span) -> str:
    """A span as URLs have it: milliseconds, of which the last one has begun."""
    return ",".join(f"{math.floor(each * 1000 + 1e-6) / 1000:.3f}" for each in span)


@dataclass(frozen=True, slots=True)
class _Zoom:
    """Links from a page with a part of a recording to pages with others."""

    here: str
    asked: Asked

    def linked(
        self, part: LinkedRecording, sound: SoundFacts, content: Content, pool: DecodePool, limits: Limits
    ) -> LinkedRecording:
        """The part of a page with these links, and with an overview if it does not show all."""
        start, length, total = sound.start, sound.drawn, sound.seconds
        if total < 2 * _SHORTEST or not length:
            return part
        is_whole = length > total - _SHORTEST
        found, middle = dict[str, str](), start + length / 2
        if length >= 2 * _SHORTEST:
            found["in"] = self._to(middle - length / 4, middle + length / 4)
        if not is_whole:
            whole = self.asked.url(self.here)
            is_shown_first = sound.has_spans and describe(content, pool, limits).drawn > total - _SHORTEST
            if sound.has_spans:
                whole = whole if is_shown_first else self._to(0, total)
            first = min(max(middle - length, 0), max(total - 2 * length, 0))
            wider = (first, min(first + 2 * length, total))
            if sound.has_spans or wider[1] - wider[0] <= WHOLE_SECONDS:
                found["out"] = whole if wider == (0, total) else self._to(*wider)
            if start > 0:
                found["earlier"] = self._to(max(start - length, 0), max(start - length, 0) + length)
            if start + length < total:
                last = min(start + 2 * length, total)
                found["later"] = self._to(last - length, last)
            if sound.has_spans or self.asked.span is not None:
                found["whole" if sound.has_spans else "first"] = whole
        part = replace(part, zoom=[*found.items()])
        if is_whole or not sound.has_spans:
            return part
        query = "" if is_shown_first else f"&t={spelled((0, total))}"
        step = total / _LINKED_PARTS
        edges = [step * number for number in range(_LINKED_PARTS)]
        remark = describe(content, pool, limits, None if is_shown_first else (0, total)).remark
        return replace(
            part,
            overview=f"{OWN}wave/{part.url}.svg?w=1200{query}",
            overview_remark=remark,
            parts=[(each, each + step, self._to(each, each + step)) for each in edges],
        )

    def _to(self, start: float, end: float) -> str:
        return self.asked.url(self.here, t=spelled((start, end)))


def _row(file: _File, limits: Limits) -> Part:
    """The JSON of a row of a table, as a table of its columns."""
    text = part_of(file.name, file.content, _SIZE, limits)
    if isinstance(text, Text):
        with suppress(ValueError, RecursionError):
            fields = parse_json(text.text.encode())
            if isinstance(fields, Mapping):
                cells = [(str(name), spelled_value(value)) for name, value in islice(fields.items(), _CELLS)]
                return TextTable(file.name, ("column", "value"), cells)
    return text


def _size(content: ContentOf) -> int | None:
    with suppress(TouchfsError):
        return content().size
    return None
