"""Extensions of recordings, by which a sample's recording is known before anything of it is read."""

from __future__ import annotations

from functools import lru_cache

AUDIO = frozenset(
    {"aac", "aif", "aiff", "amr", "au", "caf", "flac", "m4a", "mp3", "oga", "ogg", "opus", "sph", "wav", "wma"}
)
VIDEO = frozenset({"avi", "mkv", "mov", "mp4", "webm"})
# Headerless, so of unknown rate.
_PCM = "pcm"


@lru_cache
def is_recording(extension: str | None) -> bool:
    """True if a field of this extension, such as `flac` or `left.flac`, is a recording."""
    last = (extension or "").rpartition(".")[2].lower()
    return last in AUDIO or last in VIDEO or last == _PCM
