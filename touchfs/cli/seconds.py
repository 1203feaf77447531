"""Options of seconds."""

from __future__ import annotations

from typing import Any

import click

# 23 days: poll(2) takes at most 2**31 milliseconds.
SECONDS_MAX = 2_000_000


class Seconds(click.FloatRange):
    """A number of seconds that one can wait: from a minimum to `SECONDS_MAX`."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """The number. Fails with a usage error."""
        seconds: float = super().convert(value, parameter, context)
        if not seconds <= SECONDS_MAX:  # NaN is in any range
            self.fail(f"{value!r} is no number of seconds up to {SECONDS_MAX:,}", parameter, context)
        return seconds
