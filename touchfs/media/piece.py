"""A piece of a coded recording as 16-bit PCM, by libsndfile: WAV of any width, FLAC, Ogg, Opus, MP3."""

from __future__ import annotations

import io

from touchfs.errors import FormatError, MissingExtraError


def decode_piece(data: bytes, first: int, length: int, channels: int) -> bytes:
    """Interleaved samples `[first, first + length)`, all of them."""
    try:
        import soundfile
    except ImportError as error:
        raise MissingExtraError("decoding recordings needs the media extra: pip install 'touchfs[media]'") from error
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.channels != channels:
                raise FormatError(f"a recording of {file.channels} channels where {channels} were expected")
            file.seek(min(first, file.frames))
            pcm: bytes = file.read(length, dtype="int16", always_2d=True).astype("<i2").tobytes()
    except soundfile.LibsndfileError as error:
        raise FormatError(f"the recording cannot be decoded: {error.error_string}") from error
    # MP3 and Opus may have a few samples fewer than their shard says: the rest is silence.
    return pcm.ljust(2 * channels * length, b"\0")
