"""Limits of what untrusted data may make us do: the memory and the time that reading it takes, and the files that it
may name.

Ranges of files are read piece by piece and need no limit. Data that must be in memory as a whole is limited:

    json     a line of a JSONL file, or the metainfo of a sample, that is parsed
    decoded  a recording or matrix that can only be decoded as a whole
    window   the part decoded at a time of a recording that is decoded in parts
    members  the list of the members of a tar while it is indexed: about 1 kB for each, and their names

Recordings are decoded in child processes. One that takes over `decode_seconds` for a request is killed.

A JSON text takes up to 25 times its size when it is parsed (`[],[],…`), and 2 to 5 times if it is mostly strings. An
hour of speech with a time for each word has about 1 MB of it.

    audio_root  the directory or URL below which all files lie that data may name beside their shards; None: they name
                none
    audio_was   how lists name that directory, "" if by its own path: what they name below is at the same place in it
    locations   prefixes of paths and URLs: data of interleaved samples may also name what lies below one of them

Users write limits and other sizes as `parse_size` reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import inf

from touchfs.core.errors import UsageError

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMGT]?)B?", re.ASCII | re.IGNORECASE)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in bytes and seconds; UsageError if one is not positive. `audio_root` is an absolute path or a URL.

    `window`, `decode_seconds`, the two of the audio and `locations` are not in the `repr`: no index depends on the
    first two, and `Options` hashes the others. Nor is `members`, which is hashed unless it is the default.
    """

    json: int = 16 * 10**6
    decoded: int = 10**9
    window: int = field(default=4 * 10**6, repr=False)
    decode_seconds: float = field(default=5.0, repr=False)
    members: int = field(default=4 * 10**9, repr=False)
    audio_root: str | None = field(default=None, repr=False)
    audio_was: str = field(default="", repr=False)
    locations: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name in ("json", "decoded", "window", "members"):
            if getattr(self, name) < 1:
                raise UsageError(f"the limit `{name}` is a positive number of bytes, not {getattr(self, name)}")
        if not 0 < self.decode_seconds < inf:
            raise UsageError(f"the limit `decode_seconds` is a positive number, not {self.decode_seconds}")

    def with_audio(self, root: str, was: str) -> Limits:
        """The same limits with an audio root, and how lists name it (`touchfs.core.location.parse_audio_root`)."""
        return replace(self, audio_root=root, audio_was=was)

    @property
    def audio(self) -> str | None:
        """The audio root as users name it. What is shown depends on it."""
        return self.audio_root if not self.audio_was else f"{self.audio_root}={self.audio_was}"


LIMITS = Limits()


def too_long(text: str, limit: int, kind: str = "JSON") -> str:
    """Return the message about a text over the limit of JSON: `text` names it, and `kind` says what else it is."""
    return f"{text} has over {limit:,} bytes, and longer {kind} is not parsed: --max-json raises the limit"


def too_large(limit: int) -> str:
    """Return the message about data that is not decoded because it is over the limit."""
    return f"decoded it has over {limit:,} bytes: --max-decoded raises the limit"


def too_many_members(limit: int) -> str:
    """Return the message about a tar over the limit of members."""
    return f"the list of its members takes over {limit:,} bytes of memory: --max-members raises the limit"


def parse_size(text: str) -> int:
    """Parse a size in bytes such as 800M, 50G or 1.5T (decimal units). Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"not a size: {text!r}; expected bytes, or a number with k, M, G or T")
    return int(float(match[1]) * _UNITS[match[2].upper()])
