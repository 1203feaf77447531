"""The description of a recording: coding, rate, channels, sample format, exact length, and the place of its samples.

A caller may keep it as bytes, with the key by which it knows that the file is the same: what is kept is checked
against damage and against the size of the file, and not against other bytes of the same size.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.media.coding.checked_bytes import damaged, pack_checked, unpack_checked
from touchfs.media.coding.sample_format import FORMATS, WIDTHS, is_float
from touchfs.media.slices.containers import DEMUXERS
from touchfs.media.slices.packet_index import PacketIndex

# magic, version, checksum of the rest, size of the JSON text. After it: the extra data, and the columns of the index.
_MAGIC, _VERSION, _OF = b"tfMI", 2, "a recording"
_CHANNELS_MAX = 64
_NAMES = ("container", "coding", "sample_format")
_NUMBERS = ("rate", "channels", "frames", "file_size", "offset", "size")
_LOSSLESS = ("alac", "flac", "pcm")
# The coding of recordings that are decoded from their start
FROM_START = "from the start"


@dataclass(frozen=True, slots=True)
class MediaInfo:
    """A recording of `frames` samples per channel at `rate` Hz. `sample_format` is what a decoder makes of it.

    `coding` has libav's names (`pcm_s16le`, `flac`, `mp3`, `aac`, `opus`, …), `container` is that of `containers.py`.
    PCM and native FLAC are in the byte range `offset`, `size`, and need no index, nor does the coding `FROM_START`; of
    others `packets` is the index. `file_size` is that of the whole file. If it has parts that are each decoded alone,
    `links` are these, in order.
    """

    container: str
    coding: str
    rate: int
    channels: int
    sample_format: str
    frames: int
    file_size: int
    offset: int = 0
    size: int = 0
    extradata: bytes = b""
    packets: PacketIndex | None = None
    links: tuple[MediaInfo, ...] = ()

    def __post_init__(self) -> None:
        """Raises FormatError for values that no recording has."""
        if not (
            0 < self.rate < 1 << 32
            and 0 < self.channels <= _CHANNELS_MAX
            and self.sample_format in FORMATS
            and 0 <= self.frames < 1 << 62
            and self.offset >= 0
            and self.size >= 0
            and self.offset + self.size <= self.file_size
            and (self.coding != FROM_START or self.container in DEMUXERS)
        ):
            raise FormatError(f"{self.channels} channels at {self.rate} Hz: it is damaged, or cannot be sliced")
        if self.packets is not None:
            self.packets.check(self.file_size, self.frames)
        if self.links and self.frames != sum(link.frames for link in self.links):
            raise FormatError("the lengths of chained recordings do not add up: it is damaged")
        if len({self.format, *(link.format for link in self.links)}) > 1:
            raise FormatError("chained Ogg recordings of several rates, channels or codings are not supported")

    @property
    def format(self) -> tuple[int, int, str]:
        """Rate, channels and sample format."""
        return self.rate, self.channels, self.sample_format

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.frames / self.rate

    @property
    def is_lossless(self) -> bool:
        """Return whether slices have all bits of the source. If not, 16 bits are enough for them."""
        return self.coding.startswith(_LOSSLESS) or self.sample_format == "f64"  # integers of 64 bits are decoded to it

    @property
    def is_plain_pcm(self) -> bool:
        """Return whether the bytes `offset`, `size` are all samples, as a WAV file of `sample_format` has them."""
        name = {"u8": "pcm_u8"}.get(self.sample_format, f"pcm_{self.sample_format}le")
        is_whole = self.frames * self.frame_size <= self.size
        return self.packets is None and self.coding == name and is_whole

    @property
    def frame_size(self) -> int:
        """Bytes of one sample of all channels, in plain PCM."""
        return WIDTHS[self.sample_format] * self.channels

    @property
    def default_format(self) -> str:
        """The sample format of slices if none is requested: that of the source, and 16 bits for lossy codings."""
        return self.sample_format if self.is_lossless or not is_float(self.sample_format) else "s16"

    @property
    def nbytes(self) -> int:
        """Bytes that its indexes take in memory."""
        return sum(info.packets.nbytes for info in (self, *self.links) if info.packets is not None)

    def to_bytes(self) -> bytes:
        """All of it as bytes, for `from_bytes`."""
        index = self.packets
        columns = b"" if index is None else index.to_bytes()
        values: dict[str, Any] = {name: getattr(self, name) for name in (*_NAMES, *_NUMBERS)}
        values["extradata"] = len(self.extradata)
        values["packets"] = None if index is None else [len(index), len(index.sizes), index.head]
        links = [link.to_bytes() for link in self.links]
        values["links"] = [len(link) for link in links]
        return pack_checked(_MAGIC, _VERSION, values, self.extradata, *links, columns)

    @classmethod
    def from_bytes(cls, data: bytes, file_size: int) -> MediaInfo:
        """Read what `to_bytes` returned, for a file of `file_size` bytes. Raises FormatError."""
        return cls._parse(data, file_size, may_have_links=True)

    @classmethod
    def _parse(cls, data: bytes, file_size: int, *, may_have_links: bool) -> MediaInfo:
        values, rest = unpack_checked(data, _MAGIC, _VERSION, _OF)
        try:
            total, end, counts = values["file_size"], int(values["extradata"]), values["packets"]
            if total != file_size:
                raise FormatError(f"what is kept of a recording is of a file of {total} bytes, not of {file_size}")
            texts: dict[str, Any] = {name: str(values[name]) for name in _NAMES}
            numbers: dict[str, Any] = {name: int(values[name]) for name in _NUMBERS}
            edges = list(accumulate(map(int, values.get("links", ())), initial=end))
            if (len(edges) > 1 and not may_have_links) or edges != sorted(edges):
                raise damaged(_OF)
            links = [cls._parse(rest[a:b], file_size, may_have_links=False) for a, b in pairwise(edges)]
            return cls(
                **texts,
                **numbers,
                extradata=rest[:end],
                packets=None
                if counts is None
                else PacketIndex.from_bytes(rest[edges[-1] :], file_size, *map(int, counts)),
                links=tuple(links),
            )
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise damaged(_OF) from error
