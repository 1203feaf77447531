"""Sizes of images from their headers: of a range of a local file only the first bytes are read, nothing is decoded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple

import pyarrow as pa

from touchfs.core.errors import FormatError, LocationError, TouchfsError
from touchfs.core.extent import Extent, drive
from touchfs.format.image_size import ImageSize, image_size, image_size_reads
from touchfs.interleaved.fetch.pieces import PieceAccess, find_piece
from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.materialize import materialize
from touchfs.interleaved.items.tiff_frames import TIFF_MAGICS
from touchfs.interleaved.layout.source_ref import parse_source_ref
from touchfs.interleaved.tiff import frames
from touchfs.source.named.locations import LocalPlace, Locations
from touchfs.source.store import StoredFile

# Most headers of images in memory are in so many bytes. Others are looked for in all of the image.
_HEAD_SIZE = 1 << 14


class _ImageRange(NamedTuple):
    """A range of a local file that is an image, or a TIFF of several. Without a size it ends with the file."""

    offset: int
    size: int | None


# The images of a local file, and of each the rows that want it or, for a TIFF, one of its frames.
_Wanted = Mapping[_ImageRange, Mapping[int, int | None]]


def image_sizes(batch: InterleavedBatch, rows: Sequence[int], locations: Iterable[str] = ()) -> list[ImageSize | None]:
    """Return the size of the image in each of `rows`; None if it cannot be read or is of an unknown kind.

    `locations` are further places that may be read, as for `materialize`. Images of other stores and of compressed
    tars are fetched as a whole.
    """
    locations = tuple(locations)
    table = batch.table.take(pa.array(rows, pa.int64()))
    found = [_size_in(value) for value in table.column("binary_content")]
    local, others = _find_missing(table, Locations(batch.source_files, locations, batch.storage_options))
    for place, wanted in local.items():
        with closing(place.file()) as file:
            for number, size in _sizes_in_file(file, wanted).items():
                found[number] = size
    if others:
        fetched = materialize(batch.replaced(table.take(pa.array(others, pa.int64()))), locations)
        for number, value in zip(others, fetched.table.column("binary_content"), strict=True):
            found[number] = _size_in(value)
    return found


def _size_in(value: Any) -> ImageSize | None:
    if not value.is_valid:
        return None
    data = memoryview(value.as_buffer())
    return image_size(data[:_HEAD_SIZE]) or image_size(data)


def _find_missing(table: pa.Table, places: Locations) -> tuple[dict[LocalPlace, _Wanted], list[int]]:
    """Return where the images without bytes are, of which a part of a local file is enough; and the other rows."""
    local: dict[LocalPlace, dict[_ImageRange, dict[int, int | None]]] = defaultdict(lambda: defaultdict(dict))
    others = []
    has_bytes = table.column("binary_content").is_valid().to_pylist()
    for number, text in enumerate(table.column("source_ref").to_pylist()):
        if has_bytes[number]:
            continue
        try:
            ref = parse_source_ref(text)
            piece = find_piece(ref)
            place = None if piece is None else places.find(piece.path)
        except (FormatError, LocationError, TypeError):
            continue  # the row gets its `materialize_error` when its bytes are wanted
        if piece is None or place is None:
            continue
        if isinstance(place, LocalPlace) and piece.access is not PieceAccess.TAR:
            local[place][_ImageRange(piece.offset, piece.size)][number] = ref.frame_index
        else:
            others.append(number)
    return dict(local), others


def _sizes_in_file(file: StoredFile, wanted: _Wanted) -> dict[int, ImageSize | None]:
    """Return the sizes of images by the rows that want them. An image that cannot be read has none."""
    found: dict[int, ImageSize | None] = {}
    for image, numbers in wanted.items():
        with suppress(TouchfsError):
            size = file.size - image.offset if image.size is None else image.size
            sizes = _sizes_of(Extent(file, image.offset, size), set(numbers.values()))
            found.update({number: sizes.get(frame) for number, frame in numbers.items()})
    return found


def _sizes_of(extent: Extent, numbers: set[int | None]) -> dict[int | None, ImageSize | None]:
    """Return the size of an image under None, and those of frames of a TIFF under their numbers.

    A frame of another image is the image itself.
    """
    found: dict[int | None, ImageSize | None] = {}
    asked = {number for number in numbers if number is not None}
    if asked and bytes(extent.read(0, 4)) in TIFF_MAGICS:
        for frame in drive(frames(extent.size, asked), extent):
            if frame.width and frame.height:
                found[frame.number] = ImageSize(frame.width, frame.height)
        asked = set()
    if asked or None in numbers:
        found.update(dict.fromkeys([None, *asked], drive(image_size_reads(extent.size), extent)))
    return found
