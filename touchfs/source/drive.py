"""Runs a codec's plan over a source."""

from __future__ import annotations

from typing import TypeVar

from touchfs.extent import Reads, Source

T = TypeVar("T")


def drive(plan: Reads[T], source: Source) -> T:
    """The plan's result. Errors of the plan and of the source pass through."""
    try:
        offset, length = next(plan)
        while True:
            offset, length = plan.send(source.read(offset, length))
    except StopIteration as end:
        result: T = end.value
        return result
