"""A recording in any coding as an array: decoded by libsndfile, and by libav if that does not know the coding."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from touchfs.errors import FormatError, MissingExtraError
from touchfs.extras import install_hint
from touchfs.limits import LIMITS, too_large
from touchfs.media.libsndfile import load_soundfile

if TYPE_CHECKING:
    from av import AudioFrame

_EXTRA = f"decoding this recording needs the media extra: {install_hint('media')}"


def decode_recording(data: bytes, limit: int = LIMITS.decoded) -> tuple[NDArray[np.float32], int]:
    """Return the samples, within -1 and 1 and of shape (frames, channels), and the sampling rate in Hz.

    Raises FormatError for data that cannot be decoded, or that has over `limit` bytes as 32-bit floats, and
    MissingExtraError if no decoder is installed.
    """
    try:
        soundfile = load_soundfile("recordings are decoded")
    except MissingExtraError:
        return _by_libav(data, limit)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if 4 * file.frames * file.channels > limit:
                raise FormatError(too_large(limit))
            return file.read(dtype="float32", always_2d=True), file.samplerate
    except soundfile.LibsndfileError:
        return _by_libav(data, limit)  # AAC, for one


def _by_libav(data: bytes, limit: int) -> tuple[NDArray[np.float32], int]:
    try:
        import av

        from touchfs.media.libav import open_media
    except ImportError as error:
        raise MissingExtraError(_EXTRA) from error
    blocks: list[NDArray[np.float32]] = []
    size, rate = 0, 0
    try:
        with open_media(io.BytesIO(data)) as container:
            if not container.streams.audio:
                raise FormatError("cannot be decoded: it has no audio")
            resampler = av.AudioResampler(format="fltp")
            for frame in container.decode(audio=0):
                for block in map(_block, resampler.resample(frame)):
                    blocks.append(block)
                    size += block.nbytes
                    if size > limit:
                        raise FormatError(too_large(limit))
                rate = frame.sample_rate
    except av.FFmpegError as error:
        raise FormatError(f"cannot be decoded: {error.strerror}") from error
    if not blocks:
        raise FormatError("cannot be decoded: it has no sound")
    return np.concatenate(blocks), rate


def _block(frame: AudioFrame) -> NDArray[np.float32]:
    return np.ascontiguousarray(frame.to_ndarray().T, np.float32)
