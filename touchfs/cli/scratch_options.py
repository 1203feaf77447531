"""Options for the scratch store, and whose files there are believed, shared by commands that read data.

They are set in the environment, so that all processes that we start use the same store.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from touchfs.cli.command import cache_option
from touchfs.limits import parse_size
from touchfs.posix.trust import TRUST_VARIABLE, parse_users
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, LOWER_VARIABLE, SIZE_VARIABLE, Scratch


def scratch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options for the scratch store. The command gets none of them."""

    @cache_option(
        "--scratch-dir",
        type=click.Path(),
        help="Directory for decompressed shards and decoded recordings. [default: the user's cache]",
    )
    @cache_option(
        "--scratch-size",
        metavar="SIZE",
        help="Maximum size of that directory, for example 200G. [default: 50G, or half of the free disk space]",
    )
    @cache_option(
        "--lower-scratch-dir",
        type=click.Path(),
        help="Read also what others have put into this scratch directory, and never write there.",
    )
    @cache_option(
        "--trust",
        metavar="USER",
        multiple=True,
        help="Also trust indexes and states that USER wrote. [default: root, you; with --in-place the data's owner]",
    )
    @wraps(function)
    def command(
        scratch_dir: str | None,
        scratch_size: str | None,
        lower_scratch_dir: str | None,
        trust: tuple[str, ...],
        **others: Any,
    ) -> Any:
        if scratch_dir is not None:
            os.environ[DIRECTORY_VARIABLE] = os.path.abspath(scratch_dir)
        if scratch_size is not None:
            os.environ[SIZE_VARIABLE] = str(parse_size(scratch_size))
        if trust:
            os.environ[TRUST_VARIABLE] = parse_users(trust)
        if lower_scratch_dir is not None:
            os.environ[LOWER_VARIABLE] = os.path.abspath(lower_scratch_dir)
            Scratch.configured()  # says what is wrong with it
        return function(**others)

    return command
