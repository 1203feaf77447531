"""Plans of frames: which frames of a segment's video a directory shows. Its name encodes the plan, as in `merged/`.

    segments/<shard>/<key>/0000/frames/          all frames of the segment
    segments/<shard>/<key>/0000/frames,fps=2/    a frame every half a second, from the start of the segment on

`fps` is a plain decimal up to 1000.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from touchfs.core.errors import UsageError

MILLION = 10**6
_FPS_MAX = 1000
_NAME = re.compile(r"frames,fps=([0-9]{1,4}(?:\.[0-9]{1,6})?)")


@dataclass(frozen=True, slots=True)
class FramePlan:
    """`millionths` of a frame a second. `str()` is its canonical name. Raises UsageError for an impossible number."""

    millionths: int

    def __post_init__(self) -> None:
        if not 0 < self.millionths <= _FPS_MAX * MILLION:
            raise UsageError(f"fps={self.millionths / MILLION:g}: it is a number up to {_FPS_MAX}")

    @property
    def fps(self) -> Fraction:
        return Fraction(self.millionths, MILLION)

    def __str__(self) -> str:
        text = f"{Decimal(self.millionths) / MILLION:f}"
        return f"frames,fps={text.rstrip('0').rstrip('.') if '.' in text else text}"


def parse_frame_plan(text: str) -> FramePlan:
    """Parse the name of a directory, canonical or not. Raises UsageError."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise UsageError(f"{text[:80]!r}: the frames of a segment are in frames, or frames,fps=NUMBER")
    return FramePlan(int(Decimal(match[1]) * MILLION))
