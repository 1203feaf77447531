"""A file as a part of a page, by its extension. What is read of it is bounded, whatever its size."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.errors import FormatError, TouchfsError
from touchfs.core.extent import Content
from touchfs.explore.page import (
    FileList,
    Line,
    Map,
    Page,
    Part,
    Picture,
    Problem,
    ShownSegments,
    Text,
    Thumbnails,
)
from touchfs.explore.recordings import draw
from touchfs.form.compressed_content import plain_extension, read_plain
from touchfs.limits import LIMITS, Limits
from touchfs.media.extensions import can_be_cut, coding_of, is_image, preference
from touchfs.media.file_arrays import decoded_image, npy_array, npz_array
from touchfs.picture.heat_map import extremes, heat_map
from touchfs.picture.shrink import fit

TEXTS = frozenset({"txt", "json", "jsonl", "cls", "caption", "csv", "tsv", "srt", "vtt", "lab", "md", "yaml", "xml"})
# Bytes of a text, of an array and of an image that are read, pixels of an image that is decoded.
_TEXT_BYTES, _ARRAY_BYTES, _IMAGE_BYTES, _PIXELS = 1 << 16, 1 << 27, 1 << 26, 1 << 26
_INDENTED = json.JSONEncoder(ensure_ascii=False, indent=1)
_PARTS = 16
_FILES = 40
_NUMBERS = 200


@dataclass(frozen=True, slots=True)
class PictureSize:
    """How large pictures are: columns of recordings and arrays, the most pixels of an image and a heat map, and the
    seconds of a recording that can be played.
    """

    columns: int
    width: int
    height: int
    rows: int
    played_seconds: float = 0


ContentOf = Callable[[], Content]
ThumbnailsOf = Callable[[], Thumbnails]
# The sides of small images among others, in pixels
THUMBNAIL = PictureSize(1, 160, 160, 1)


def sample_page(
    title: str,
    place: str,
    files: Mapping[str, ContentOf],
    size: PictureSize,
    segments: ShownSegments | None = None,
    first: str = "",
    limits: Limits = LIMITS,
    *,
    in_order: bool = False,
    frames: Mapping[str, ThumbnailsOf] | None = None,
) -> Page:
    """The page of a sample: the contents of its `files` by their extensions, the one called `first` before others, or
    all `in_order`. Videos have their `frames` before their sound. What cannot be shown is a Problem in its place.
    """
    shown = [*filter(_is_shown, files)]
    if not in_order:
        shown.sort(key=lambda name: (name != first, *_order(name)))
    parts: list[Part] = []
    for name in shown[:_PARTS]:
        part = part_of(name, files[name], size, limits)
        if frames and name in frames:
            parts.append(seen := _frames(name, frames[name]))
            if isinstance(part, Problem) and not isinstance(seen, Problem):
                continue  # a silent video
        parts.append(part)
        if segments is not None and can_be_cut(name):
            parts.append(segments)
            segments = None
    sizes = [(name, _size(files[name])) for name in [*files][:_FILES]]
    rest = () if segments is None else (segments,)
    return Page(title, place, (), (*parts, *rest, FileList(sizes, max(len(files) - _FILES, 0))))


def _is_shown(name: str) -> bool:
    last = coding_of(plain_extension(name))
    return can_be_cut(name) or is_image(name) or last in TEXTS or last in ("npy", "npz")


def _order(name: str) -> tuple[Any, ...]:
    kinds = (can_be_cut(name), is_image(name), coding_of(name) in ("npy", "npz"), "json" not in name)
    return kinds.index(True) if True in kinds else len(kinds), preference(name)


def _size(content: ContentOf) -> int | None:
    try:
        return content().size
    except TouchfsError:
        return None


def part_of(name: str, content: ContentOf, size: PictureSize, limits: Limits = LIMITS) -> Part:
    """A file as a part of a page. One that cannot be shown is a Problem."""
    try:
        if can_be_cut(name):
            return draw(name, content(), size.columns, limits, size.played_seconds)
        if is_image(name):
            return _image(name, content(), size)
        if coding_of(name) in ("npy", "npz"):
            return _array(name, content(), size)
        return _text(name, content(), limits)
    except TouchfsError as error:
        return Problem(name, error.message)


def _frames(name: str, frames: ThumbnailsOf) -> Part:
    try:
        return frames()
    except TouchfsError as error:
        return Problem(name, error.message)


def thumbnail(name: str, content: ContentOf) -> NDArray[np.uint8] | None:
    """A small version of an image; None for one that cannot be shown."""
    part = part_of(name, content, THUMBNAIL)
    return part.pixels if isinstance(part, Picture) else None


def _image(name: str, content: Content, size: PictureSize) -> Part:
    if content.size > _IMAGE_BYTES:
        raise FormatError(f"an image of {content.size:,} bytes is not read to be shown")
    data = bytes(content.read(0, content.size))
    image = decoded_image(data, name, _PIXELS, 2 * max(size.width, size.height))
    facts = f"{image.format} · {image.width} × {image.height} · {content.size:,} bytes"
    width, height = fit(*image.size, size.width, size.height)
    try:
        pixels = np.asarray(image.convert("RGB").resize((width, height)), np.uint8)
    except (ValueError, OSError) as error:
        raise FormatError(f"its colours cannot be shown: {error}") from error
    return Picture(name, facts, pixels)


def _array(name: str, content: Content, size: PictureSize) -> Part:
    if content.size > _ARRAY_BYTES:
        raise FormatError(f"an array of {content.size:,} bytes is not read to be shown")
    data = bytes(content.read(0, content.size))
    array = (npy_array if coding_of(name) == "npy" else npz_array)(data, name)
    facts = f"{array.dtype}, {' × '.join(map(str, array.shape)) or 'one number'}"
    if not array.size or array.dtype.kind not in "biuf":
        return Text(name, facts)
    numbers = array.astype(np.float64) if array.dtype.kind == "f" else array
    facts = f"{facts} · {_statistics(numbers)}"
    flat = array.reshape(-1)
    if array.ndim < 2 or 1 in array.shape:
        first = "  ".join(f"{each:g}" for each in flat[:_NUMBERS].tolist()) + ("  …" if flat.size > _NUMBERS else "")
        return Line(name, facts, *extremes(flat, size.columns), first)
    plane = array.reshape(array.shape[0], -1) if array.ndim == 2 else array.reshape(-1, array.shape[-1])
    return Map(name, facts, heat_map(plane, size.rows, size.columns))


def _statistics(array: NDArray[Any]) -> str:
    finite = array[np.isfinite(array)]
    if not finite.size:
        return "no finite number"
    strange = array.size - finite.size
    words = f"min {finite.min():g} · mean {finite.mean(dtype=np.longdouble):g} · max {finite.max():g}"
    return words + (f" · {strange:,} not finite" if strange else "")


def _text(name: str, content: Content, limits: Limits) -> Text:
    if plain_extension(name) == name:
        size, data = content.size, bytes(content.read(0, _TEXT_BYTES))
    else:
        whole = read_plain(name, content, limits.json)
        size, data = len(whole), whole[:_TEXT_BYTES]
    remark = f"the first {len(data):,} of {size:,} bytes" if size > len(data) else ""
    text = data.decode("utf-8", "replace")
    return Text(name, text if remark or "json" not in name else _indented(text), remark)


def _indented(text: str) -> str:
    """JSON with indents, unless these would be most of it."""
    pieces = list[str]()
    room = 4 * _TEXT_BYTES
    try:
        for piece in _INDENTED.iterencode(json.loads(text)):
            pieces.append(piece)
            room -= len(piece)
            if room < 0:
                return text
    except (ValueError, RecursionError):
        return text
    return "".join(pieces)
