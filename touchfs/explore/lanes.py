"""Segments in lanes: those of a speaker are in one, as far as they do not overlap."""

from __future__ import annotations

from collections.abc import Sequence

from touchfs.explore.page import ShownSegment


def lanes_of(segments: Sequence[ShownSegment]) -> list[list[ShownSegment]]:
    """Lanes of segments in order of time, of which none overlaps another one of its lane."""
    lanes: list[list[ShownSegment]] = []
    for segment in sorted(segments, key=lambda each: (each.start, each.end)):
        fitting = [
            lane for lane in lanes if lane[-1].end <= segment.start + 1e-6 and lane[0].speaker == segment.speaker
        ]
        if fitting:
            fitting[0].append(segment)
        else:
            lanes.append([segment])
    return lanes
