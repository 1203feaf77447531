"""The form of recordings whose rate and length no header tells: they are found when they are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from touchfs.core.extent import Buffer, Content, Extent, Memory, Rope
from touchfs.form.base import Form, Timing
from touchfs.form.lengths import info_of, known_info
from touchfs.form.samples import samples_of, wav_of_samples, wav_size
from touchfs.limits import Limits
from touchfs.media.coding.sample_format import wav_header
from touchfs.segments.packed_times import PackedTimes
from touchfs.segments.segment import Spanned

if TYPE_CHECKING:
    from touchfs.media.slices.media_info import MediaInfo
    from touchfs.media.slices.read_slice import PcmSlice


@dataclass(frozen=True, slots=True)
class Unmeasured(Form):
    """`unmeasured`: a recording in any coding; the file is a WAV of the times that `detail` packs
    (`touchfs.segments.packed_times`).

    It keeps the bit depth of PCM and FLAC, and has 16 bits for lossy codings.
    """

    def __str__(self) -> str:
        return "unmeasured"

    def size(self, length: int, detail: bytes) -> None:
        return None

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> RecordingSpan:
        return RecordingSpan(extent, PackedTimes.parse(detail), limits)

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        info = known_info(extent)
        if info is None:
            return None
        _, length, _ = PackedTimes.parse(detail).span(info.rate, info.frames)
        return wav_size(length, info.channels, info.default_format)

    def known_timing(self, extent: Extent, detail: bytes) -> Timing | None:
        info = known_info(extent)
        return None if info is None else _timing(info, detail)

    def measured(self, extent: Extent, detail: bytes, limits: Limits) -> Timing:
        return _timing(info_of(extent, limits), detail)

    def samples(self, extent: Extent, detail: bytes, limits: Limits) -> PcmSlice:
        info = info_of(extent, limits)
        first, length, _ = PackedTimes.parse(detail).span(info.rate, info.frames)
        return samples_of(extent, first, length, info.rate, info.channels, limits)


class RecordingSpan:
    """A content: a WAV file of a span of a recording, which is read to know what it is when `size` is first needed.

    `size` and `read` block for that. They raise the errors of `info_of`.
    """

    __slots__ = ("_content", "_extent", "_limits", "_span")

    def __init__(self, extent: Extent, span: Spanned, limits: Limits) -> None:
        self._extent = extent
        self._span = span
        self._limits = limits
        self._content: Content | None = None

    @property
    def size(self) -> int:
        return self._measured(info_of(self._extent, self._limits)).size if self._content is None else self._content.size

    def read(self, offset: int, length: int) -> Buffer:
        content = self._content or self._measured(info_of(self._extent, self._limits))
        return content.read(offset, length)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        content = self._content
        if content is None:
            info = known_info(self._extent)
            if info is None:
                return None
            content = self._measured(info)
        return content.read_nowait(offset, length)

    def _measured(self, info: MediaInfo) -> Content:
        first, length, _ = self._span.span(info.rate, info.frames)
        if info.is_plain_pcm:
            size = length * info.frame_size
            header = Memory(wav_header(size, info.rate, info.channels, info.sample_format))
            start = self._extent.offset + info.offset + first * info.frame_size
            self._content = Rope((header, Extent(self._extent.source, start, size)))
        else:
            self._content = wav_of_samples(
                self._extent, first, length, info.rate, info.channels, info.default_format, self._limits
            )
        return self._content


def _timing(info: MediaInfo, detail: bytes) -> Timing:
    _, length, _ = PackedTimes.parse(detail).span(info.rate, info.frames)
    return Timing(length, info.rate, info.channels, info.default_format)
