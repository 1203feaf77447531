"""Extensions of recordings and images, by which those of a sample are known before anything of it is read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

AUDIO = frozenset(
    {
        *("aac", "ac3", "aif", "aiff", "amr", "au", "caf", "flac", "m4a", "mka", "mp2", "mp3", "mpg", "oga", "ogg"),
        *("opus", "sph", "ts", "w64", "wav", "wma"),
    }
)
VIDEO = frozenset({"avi", "mkv", "mov", "mp4", "webm"})
IMAGE = frozenset(
    {"avif", "bmp", "gif", "heic", "jp2", "jpeg", "jpg", "jxl", "pbm", "pgm", "png", "ppm", "tif", "tiff", "webp"}
)
# Headerless, so of unknown rate.
_PCM = "pcm"
# Their headers have rate, channels and length.
_HEADED = frozenset({"wav", "flac"})


@lru_cache
def is_recording(extension: str | None) -> bool:
    """True if a field of this extension, such as `flac` or `left.flac`, is a recording."""
    last = coding_of(extension)
    return last in AUDIO or last in VIDEO or last == _PCM


@lru_cache
def can_be_cut(extension: str | None) -> bool:
    """True if a field of this extension is a recording of which `touchfs.media.slices` reads parts."""
    last = coding_of(extension)
    return last in AUDIO or last in VIDEO


@lru_cache
def is_video(extension: str | None) -> bool:
    """True if a field of this extension is a video, of which `touchfs.media.video` copies parts."""
    return coding_of(extension) in VIDEO


def is_image(extension: str | None) -> bool:
    """True if a field of this extension is an image."""
    return coding_of(extension) in IMAGE


def coding_of(extension: str | None) -> str:
    """The last part of an extension in lower case: `flac` of `left.FLAC`."""
    return (extension or "").rpartition(".")[2].lower()


def has_header(extension: str | None) -> bool:
    """True if a recording of this extension has a header with rate, channels and length."""
    return coding_of(extension) in _HEADED


def recordings_among(extensions: Iterable[str]) -> list[str]:
    """The extensions of a sample's files that can be decoded, in order of preference: the first is its recording.

    WAV and FLAC precede other audio, which precedes video. Among these the order of `extensions` counts.
    """
    return sorted((each for each in extensions if coding_of(each) in AUDIO | VIDEO), key=preference)


def preference(extension: str | None) -> tuple[bool, bool]:
    """The place of an extension in the order of `recordings_among`: the lowest is the recording."""
    return not has_header(extension), coding_of(extension) in VIDEO
