"""Options of seconds."""

from __future__ import annotations

import math
from typing import Any

import click

# 23 days: poll(2) takes at most 2**31 milliseconds.
SECONDS_MAX = 2_000_000


class Seconds(click.FloatRange):
    """A number of seconds that one can wait: from a minimum to `SECONDS_MAX`, and no NaN, which is in any range."""

    def __init__(self, minimum: float, *, min_open: bool = False) -> None:
        super().__init__(minimum, SECONDS_MAX, min_open=min_open)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """The number. Fails with a usage error."""
        seconds: float = super().convert(value, parameter, context)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds", parameter, context)
        return seconds
