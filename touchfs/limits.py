"""Limits of the memory that reading untrusted data may take.

Ranges of files are read piece by piece and need no limit. Data that must be in memory as a whole is limited:

    json     a line of a JSONL file, or the metainfo of a sample, that is parsed
    decoded  a recording or matrix that can only be decoded as a whole
    window   the part decoded at a time of a recording that is decoded in parts

A JSON text takes up to 25 times its size when it is parsed (`[],[],…`), and 2 to 5 times if it is mostly strings. An
hour of speech with a time for each word has about 1 MB of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from touchfs.errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in bytes; UsageError if one is not positive. `window` is not in the `repr`, as no index depends on it."""

    json: int = 16 * 10**6
    decoded: int = 10**9
    window: int = field(default=4 * 10**6, repr=False)

    def __post_init__(self) -> None:
        if min(self.json, self.decoded, self.window) < 1:
            raise UsageError(f"limits are positive numbers of bytes, not {self.json}, {self.decoded}, {self.window}")


LIMITS = Limits()


def too_long(text: str, limit: int) -> str:
    """Return the message about a JSON text over the limit, where `text` names it."""
    return f"{text} has over {limit:,} bytes, and longer JSON is not parsed: --max-json raises the limit"


def too_large(limit: int) -> str:
    """Return the message about data that is not decoded because it is over the limit."""
    return f"decoded it has over {limit:,} bytes: --max-decoded raises the limit"
