"""A recording whose bytes are in memory: what it is, and all of its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Memory
from touchfs.limits import LIMITS, too_large
from touchfs.media.coding.sample_format import dtype
from touchfs.media.decoder.shared import shared_pool
from touchfs.media.slices.media_info import MediaInfo
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice


@dataclass(frozen=True, slots=True)
class WholeRecording:
    """The bytes of a recording, and its description."""

    content: Memory
    info: MediaInfo

    @classmethod
    def of(cls, data: Buffer) -> WholeRecording:
        """Raises FormatError for data that cannot be decoded, and MissingExtraError without PyAV if that is needed."""
        content = Memory(bytes(data))
        return cls(content, probe(content, shared_pool(LIMITS.decode_seconds)))

    def samples(self, sample_format: str, limit: int = LIMITS.decoded) -> NDArray[Any]:
        """All samples in this format, of shape (frames, channels). Raises as `of`, and for over `limit` bytes."""
        info = self.info
        if info.frames * info.channels * dtype(sample_format).itemsize > limit:
            raise FormatError(too_large(limit))
        pool = shared_pool(LIMITS.decode_seconds)
        return read_slice(self.content, info, 0, info.frames, pool, sample_format).samples
