"""Decode a piece of a coded recording to 16-bit PCM with libsndfile: WAV of any width, FLAC, Ogg, Opus, MP3.

libsndfile seeks to the piece and reads only what it needs, so neither the recording nor its PCM is in memory as a
whole. After a seek in an MP3, samples may differ by 1 from a decode from the start; other formats decode the same.
"""

from __future__ import annotations

import io
import os

from touchfs.errors import FormatError, TouchfsError
from touchfs.extent import Content
from touchfs.media.libsndfile import load_soundfile

_READ_SIZE = 1 << 16


def decode_piece(recording: Content, first: int, length: int, channels: int) -> bytes:
    """Return the interleaved 16-bit samples `[first, first + length)` of all channels; `length` is per channel.

    Raises FormatError if the recording cannot be decoded, MissingExtraError without soundfile, and the errors of
    `recording.read`.
    """
    soundfile = load_soundfile("recordings are decoded")
    raw = _Reader(recording)
    pcm = b""
    try:
        with soundfile.SoundFile(io.BufferedReader(raw, _READ_SIZE)) as file:
            if file.channels != channels:
                raise FormatError(f"a recording of {file.channels} channels where {channels} were expected")
            file.seek(min(first, file.frames))
            pcm = file.read(length, dtype="int16", always_2d=True).astype("<i2", copy=False).tobytes()
    except soundfile.LibsndfileError as error:
        if raw.failure is None:
            raise FormatError(f"the recording cannot be decoded: {error.error_string}") from error
    if raw.failure is not None:
        raise raw.failure
    # MP3 and Opus may have a few samples fewer than their shard declares: the rest is silence.
    return pcm.ljust(2 * channels * length, b"\0")


class _Reader(io.RawIOBase):
    """A content as a file. libsndfile cannot pass exceptions on: the first one is kept, and the file ends there."""

    def __init__(self, content: Content) -> None:
        self.failure: TouchfsError | None = None
        self._content = content
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self._content.size}[whence]
        self._offset = max(start + offset, 0)
        return self._offset

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data: bytes | bytearray | memoryview = b""
        if self.failure is None:
            try:
                data = self._content.read(self._offset, len(buffer))
            except TouchfsError as error:
                self.failure = error
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)
