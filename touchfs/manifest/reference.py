"""A reference: a line of a list that points to audio elsewhere.

The path is as written: relative to the list or to some root, absolute, or a URL. Who opens it decides which paths are
allowed. What would run a command is refused here: Kaldi's pipes, and Lhotse's sources of the type `command`.
"""

from __future__ import annotations

from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.segments.formats.lines import shown
from touchfs.segments.segment import Segment

_PATH_MAX = 4096


class Reference(NamedTuple):
    """A piece of the audio at `path`, or of the `recording` of that id in another list, if `path` is None.

    `segment` has the times in the audio, the text and the labels.
    """

    path: str | None
    recording: str | None
    segment: Segment


def checked_path(path: object) -> str:
    """Return a path as written. Raises FormatError if it is not a path, or a command."""
    if not isinstance(path, str) or not path or "\0" in path or len(path) > _PATH_MAX:
        raise FormatError(f"{shown(path) if isinstance(path, str) else type(path).__name__} is not a path")
    if path.startswith(("|", "pipe:")) or path.endswith("|"):
        raise FormatError(f"{shown(path)} is a command, and commands are never run: name a file")
    return path
