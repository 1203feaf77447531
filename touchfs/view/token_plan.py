"""Plans of token windows: how the tokens of a shard are cut into windows. A name in a path encodes the plan.

    tokens/4096/<shard>/000000.npy              windows of 4,096 tokens, one after the other
    tokens/4097,overlap=1/<shard>/000000.npy    each begins with the last token of the one before it
    tokens/4096,drop_last/<shard>/000000.npy    without the last window if it is shorter

The last window has the tokens that are left. It is there if one of them is in no window before it: so every window has
more tokens than the overlap, and a shard with no more tokens than that has no window.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from touchfs.core.errors import UsageError

LENGTH_MAX = 2_000_000
_NAME = re.compile(r"([1-9][0-9]{0,6})(?:,overlap=([1-9][0-9]{0,6}))?(,drop_last)?")


@dataclass(frozen=True, slots=True)
class TokenPlan:
    """Windows of `length` tokens, of which the first `overlap` are the last ones of the window before. `str()` is its
    name. Raises UsageError for numbers that make no windows.
    """

    length: int
    overlap: int = 0
    drop_last: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.length <= LENGTH_MAX:
            raise UsageError(f"a window has from 1 to {LENGTH_MAX:,} tokens, not {self.length}")
        if not 0 <= self.overlap < self.length:
            raise UsageError(
                f"an overlap of {self.overlap} tokens in windows of {self.length}: it is from 0 to {self.length - 1}"
            )

    @property
    def step(self) -> int:
        """How many tokens after a window the next one begins."""
        return self.length - self.overlap

    def count(self, tokens: int) -> int:
        """The number of windows of so many tokens."""
        new = max(tokens - self.overlap, 0)
        return new // self.step if self.drop_last else -(-new // self.step)

    def __str__(self) -> str:
        overlap = f",overlap={self.overlap}" if self.overlap else ""
        return f"{self.length}{overlap}{',drop_last' if self.drop_last else ''}"


def parse_token_plan(name: str) -> TokenPlan:
    """The plan of a name, which only one name has. Raises UsageError that says how one is written."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"{name[:80]!r} is no plan of token windows: write 4096, 4097,overlap=1 or 4096,drop_last")
    return TokenPlan(int(match[1]), int(match[2] or 0), drop_last=bool(match[3]))
