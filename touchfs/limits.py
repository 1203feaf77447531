"""How much memory data may ask of us, whatever it claims to be.

Ranges of files are read piece by piece, so none of these limits them. What has to be in memory as a whole is limited:

    json     a line of a JSONL file, or the metainfo of a sample, that is parsed
    decoded  a recording or matrix that can only be decoded as a whole
    window   of a recording that is decoded in parts, the part that is decoded at a time

A JSON text takes up to 25 times its size when it is parsed (`[],[],…`), and 2 to 5 times if it is mostly strings. An
hour of speech with a time for each word has about 1 MB of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from touchfs.errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """In bytes. `window` has no part in the `repr`, as no index depends on it."""

    json: int = 16 * 10**6
    decoded: int = 10**9
    window: int = field(default=4 * 10**6, repr=False)

    def __post_init__(self) -> None:
        if min(self.json, self.decoded, self.window) < 1:
            raise UsageError(f"limits are positive numbers of bytes, not {self.json}, {self.decoded}, {self.window}")


LIMITS = Limits()


def too_long(text: str, limit: int) -> str:
    """The message about a JSON text that is not parsed, where `text` names it."""
    return f"{text} has over {limit:,} bytes, and longer JSON is not parsed: --max-json raises the limit"


def too_large(limit: int) -> str:
    """The message about what is not decoded."""
    return f"decoded it has over {limit:,} bytes: --max-decoded raises the limit"
