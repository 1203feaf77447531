"""The rendering of a slice: its rate, channels and format."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from touchfs.core.errors import UsageError

MONO = "mono"
# Samples that are rendered as a whole, in bytes: 12 minutes of 44.1 kHz in 16 bits
SAMPLES_MAX = 1 << 26
_RATE_MAX = 1_000_000
_FLAC_FORMATS = {"u8": "s16", "s16": "s16", "s24": "s24"}
_FLAC_CHANNELS_MAX = 8
_CHANNELS = re.compile(rf"{MONO}|0|[1-9][0-9]?")


@dataclass(frozen=True, slots=True)
class Rendering:
    """The rate, channels and format in which a slice is shown.

    `rate` is in Hz, None for that of the source. `channels` is None for all, "mono", or a number as text.
    `sample_format` is None or "f32", and `file` is "wav" or "flac". Raises UsageError for other values.

    The methods take what the slice has without a rendering: length, rate, channels, sample format.
    """

    rate: int | None = None
    channels: str | None = None
    sample_format: Literal["f32"] | None = None
    file: Literal["wav", "flac"] = "wav"

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= _RATE_MAX:
            raise UsageError(f"rate={self.rate}: a rate is 1 to {_RATE_MAX:,} Hz")
        if self.channels is not None and not _CHANNELS.fullmatch(self.channels):
            raise UsageError(f"channels={self.channels}: it is mono, or the number of a channel")
        if self.sample_format not in (None, "f32") or self.file not in ("wav", "flac"):
            raise UsageError(f"format={self.sample_format or self.file}: it is wav, flac or f32")
        if self.sample_format == "f32" and self.file == "flac":
            raise UsageError("FLAC has no floats: choose format=flac or format=f32")

    def channels_of(self, channels: int) -> int:
        """The number of channels of the file. Raises UsageError if the recording has no such channel."""
        if self.channels is None:
            return channels
        if self.channels != MONO and int(self.channels) >= channels:
            raise UsageError(f"channels={self.channels}: the recording has {channels}, the first one is 0")
        return 1

    def format_of(self, channels: int, sample_format: str) -> str:
        """The sample format of the file. Raises UsageError if a FLAC cannot hold it."""
        if self.file == "wav":
            return self.sample_format or sample_format
        if sample_format not in _FLAC_FORMATS or self.channels_of(channels) > _FLAC_CHANNELS_MAX:
            raise UsageError("FLAC has up to 24 bits and 8 channels: choose format=wav for this recording")
        return _FLAC_FORMATS[sample_format]

    def length_of(self, length: int, rate: int) -> int:
        """The samples per channel of the file for a slice of `length` samples at `rate` Hz."""
        return -(-length * (self.rate or rate) // rate)
