"""Make the content of a file from an extent and its form (`touchfs.sample`).

`detail` is what the catalog stores of a file besides its range.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache

import numpy as np

from touchfs.errors import FormatError
from touchfs.extent import Content, Extent, Memory, Rope
from touchfs.format import holes, npy, wav
from touchfs.limits import LIMITS
from touchfs.sample import Field, Recording
from touchfs.view.rendered import ComputedContent

SAMPLE_SIZE = 2
_PIECE = struct.Struct("<qq")  # the detail of the form `decoded`: first sample and number of samples

Presenter = Callable[[Extent, bytes], Content]


def size_of(form: str, length: int, detail: bytes = b"") -> int:
    """The size of the file that `length` stored bytes become in a form. Raises FormatError for an unknown form."""
    if form == "bytes":
        return length
    if form == "inline":
        return len(detail)
    kind, _, parameter = form.partition("/")
    if kind == "wav":
        return wav.header_size(length) + length
    if kind == "npy":
        return _npy_header_size(parameter) + length
    if kind == "sparse":
        return holes.size_of(detail)
    if kind == "decoded":
        length = _PIECE.unpack(detail)[1] * SAMPLE_SIZE * _audio(parameter)[1]
        return wav.header_size(length) + length
    if kind == "lilcom":
        shape = tuple(_numbers(parameter))
        return len(npy.build_header(np.dtype("<f4"), shape)) + 4 * math.prod(shape)
    raise _unknown(form)


def presenter(form: str, window: int = LIMITS.window) -> Presenter:
    """A function that makes the content of a form from an extent and a detail, for all forms but `inline`.

    Recordings are decoded `window` bytes at a time. Raises FormatError for an unknown form.
    """
    kind, _, parameter = form.partition("/")
    if kind == "bytes":
        return lambda extent, detail: extent
    if kind == "wav":
        rate, channels = _audio(parameter)
        return lambda extent, detail: Rope((Memory(wav.build_header(extent.size, rate, channels)), extent))
    if kind == "npy":
        dtype = np.dtype(parameter)
        return lambda extent, detail: Rope((Memory(npy.build_header(dtype, (extent.size // dtype.itemsize,))), extent))
    if kind == "sparse":
        return holes.present
    if kind == "decoded":
        rate, channels = _audio(parameter)
        frame = SAMPLE_SIZE * channels
        window = max(window // frame, 1) * frame
        return lambda extent, detail: _decoded(extent, rate, channels, window, *_PIECE.unpack(detail))
    if kind == "lilcom":
        _numbers(parameter)
        return lambda extent, detail: _lilcom(form, extent)
    raise _unknown(form)


def piece(recording: Recording, first: int, length: int, note: str = "") -> Field:
    """A field with `length` samples of a recording, beginning at sample `first`, as a WAV."""
    source = recording.field
    if source.form.startswith("wav/"):
        width = SAMPLE_SIZE * recording.channels
        return Field(
            source.name, source.source, source.offset + first * width, length * width, source.form, "wav", note
        )
    form = f"decoded/{recording.rate}/{recording.channels}"
    return Field(source.name, source.source, source.offset, source.size, form, "wav", note, _PIECE.pack(first, length))


def extend_piece(
    offset: int, length: int, detail: bytes, old: tuple[int, int], new: tuple[int, int]
) -> tuple[int, int, bytes]:
    """Offset, length and detail of a piece extended from the span `old` to `new`, in samples, with the same start.

    `offset`, `length` and `detail` are those of the old piece.
    """
    if detail:
        return offset, length, _PIECE.pack(*new)
    return offset, length // old[1] * new[1], b""


def recording_of(field: Field) -> Recording | None:
    """A field of PCM as a recording; None for other fields."""
    if not field.form.startswith("wav/"):
        return None
    rate, channels = _audio(field.form.removeprefix("wav/"))
    return Recording(field, rate, channels, field.size // (SAMPLE_SIZE * channels))


def _decoded(extent: Extent, rate: int, channels: int, window: int, first: int, length: int) -> Content:
    frame = SAMPLE_SIZE * channels

    def render(offset: int, size: int) -> bytes:
        from touchfs.media.piece import decode_piece

        return decode_piece(extent, first + offset // frame, size // frame, channels)

    size = length * frame
    return Rope((Memory(wav.build_header(size, rate, channels)), ComputedContent(size, window, render)))


def _lilcom(form: str, extent: Extent) -> Content:
    """lilcom decompresses a matrix only as a whole."""
    header = npy.build_header(np.dtype("<f4"), tuple(_numbers(form.removeprefix("lilcom/"))))

    def render(offset: int, size: int) -> bytes:
        from touchfs.media.lilcom import decompress

        return decompress(bytes(extent.read(0, extent.size))).astype("<f4", copy=False).tobytes()

    size = size_of(form, extent.size) - len(header)
    return Rope((Memory(header), ComputedContent(size, max(size, 1), render)))


def frames_of(form: str, length: int, detail: bytes) -> tuple[int, int] | None:
    """Samples per channel of a recording, and its rate in Hz; None if the form does not contain them."""
    kind, _, parameter = form.partition("/")
    if kind == "wav":
        rate, channels = _audio(parameter)
        return length // (SAMPLE_SIZE * channels), rate
    if kind == "decoded":
        return _PIECE.unpack(detail)[1], _audio(parameter)[0]
    return None


def _audio(parameter: str) -> tuple[int, int]:
    """Rate and channels."""
    rate, *channels = _numbers(parameter)
    return rate, channels[0] if channels else 1


def _numbers(parameter: str) -> list[int]:
    """Raises ValueError."""
    return [int(number) for number in parameter.split("/")]


@cache
def _npy_header_size(dtype: str) -> int:
    """The same for any one-dimensional array: the header has room for the length to grow."""
    return len(npy.build_header(np.dtype(dtype), (0,)))


def _unknown(form: str) -> FormatError:
    return FormatError(f"the catalog names a form {form!r} that this touchfs does not know")
