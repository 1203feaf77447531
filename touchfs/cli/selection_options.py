"""Options that choose samples of a dataset, as the spec of an iterator does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

SAMPLES = "samples"


def selection_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--select` and `--where`. The command gets `select` and `where`."""
    where = click.option(
        "--where", metavar="EXPRESSION", help="Only samples for which this holds, such as 'duration > 2'."
    )
    select = click.option(
        "--select",
        default=SAMPLES,
        metavar="WHAT",
        help="samples, segments, interleaved, merged/PLAN, tokens/LENGTH, or a path below one, such as samples/SHARD.",
    )
    return select(where(function))
