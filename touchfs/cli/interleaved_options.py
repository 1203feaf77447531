"""Options for interleaved samples, shared by commands that open a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from touchfs.format.interleaved.policies import ERROR, ITEM_POLICIES
from touchfs.items.located.addresses import is_address
from touchfs.items.located.locations import Locations
from touchfs.posix.paths import absolute_directory


def _absolute_locations(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    Locations(allowed=given)  # raises UsageError for what is no location
    return tuple(absolute_directory(each) if is_address(each) else os.path.abspath(each) for each in given)


def interleaved_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options for interleaved samples but `--kind`. The command gets `on_error` and `allowed_locations`."""
    for decorate in (
        click.option(
            "--allow-location",
            "allowed_locations",
            multiple=True,
            callback=_absolute_locations,
            metavar="PREFIX",
            help="Directory or URL below which files may lie that interleaved samples name. Can be repeated.",
        ),
        click.option(
            "--on-error",
            type=click.Choice(ITEM_POLICIES),
            default=ERROR,
            show_default=True,
            help="What to do with an item of interleaved/ whose bytes cannot be found.",
        ),
    ):
        function = decorate(function)
    return function
