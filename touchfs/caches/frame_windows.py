"""Windows over the frames of videos: which frames the n-th window of a plan has. Arithmetic only.

A window has `length` frames, of which `skip` are left out between two. Windows of a video begin at frames 0, `hop`,
2 × `hop` …, as long as a whole window is left; they are numbered video by video. No list of windows is kept: a number
for each video is enough to find any of them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

_NAME = re.compile(r"L([1-9]\d{0,8})-s(0|[1-9]\d{0,8})-h([1-9]\d{0,8})(?:-m([1-9]\d{0,8}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """A rule that cuts a video into windows of `length` frames. Videos of fewer than `min_frames` frames have none.

    Raises ValueError if `length` or `hop` is below 1, or `skip` below 0.
    """

    length: int = 1
    skip: int = 0
    hop: int = 1
    min_frames: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("window_length", self.length, 1),
            ("frame_skip", self.skip, 0),
            ("hop_size", self.hop, 1),
        ):
            if value < least:
                raise ValueError(f"{name} must be >= {least}, got {value}")

    @classmethod
    def parse(cls, name: str) -> WindowPlan | None:
        """The plan that a name stands for, such as `L16-s0-h4` or `L16-s0-h4-m20`; None for other names."""
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        length, skip, hop, least = match.groups()
        return cls(int(length), int(skip), int(hop), None if least is None else int(least))

    @property
    def name(self) -> str:
        """The name that `parse` takes."""
        least = "" if self.min_frames is None else f"-m{self.min_frames}"
        return f"L{self.length}-s{self.skip}-h{self.hop}{least}"

    @property
    def stride(self) -> int:
        """Frames from one frame of a window to the next."""
        return self.skip + 1

    @property
    def span(self) -> int:
        """Frames of the video from the first frame of a window to its last, both included."""
        return (self.length - 1) * self.stride + 1

    def count(self, frames: int) -> int:
        """The number of windows in a video of `frames` frames."""
        if frames < max(self.span, self.min_frames or 0):
            return 0
        return (frames - self.span) // self.hop + 1

    def frames(self, start: int) -> range:
        """The frames of the window that begins at frame `start`."""
        return range(start, start + self.span, self.stride)


class Windows:
    """The windows of a plan over videos of `frame_counts` frames. `len()` is their number."""

    __slots__ = ("_ends", "plan")

    def __init__(self, plan: WindowPlan, frame_counts: Sequence[int]) -> None:
        self.plan = plan
        self._ends = list(accumulate(plan.count(frames) for frames in frame_counts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def locate(self, number: int) -> tuple[int, int]:
        """The position of the video of a window, and the frame that the window begins at. Raises IndexError."""
        if not 0 <= number < len(self):
            raise IndexError(f"window {number} of {len(self)}")
        video = bisect_right(self._ends, number)
        first = self._ends[video - 1] if video else 0
        return video, (number - first) * self.plan.hop
