"""Options for remote data, shared by commands that open a dataset.

They are set in the environment, so that all processes that we start have the same. No secret is an option: everybody
sees the arguments of a process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from touchfs.cli.command import remote_option
from touchfs.cli.limit_options import Seconds
from touchfs.cli.scratch_options import scratch_options
from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.indexing.published.fetch import INDEX_VARIABLE
from touchfs.limits import parse_size
from touchfs.source.remote.storage_options import (
    FILE_VARIABLE,
    IMMUTABLE_VARIABLE,
    OPTIONS_VARIABLE,
    REQUESTS,
    REQUESTS_VARIABLE,
    REVALIDATE_SECONDS,
    REVALIDATE_VARIABLE,
    TIMEOUT_SECONDS,
    TIMEOUT_VARIABLE,
    parse_option,
)


def remote_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that open an indexed dataset. The command gets only `timeout`, in seconds or None."""

    @remote_option(
        "--index",
        "index_prefix",
        metavar="PREFIX",
        help=(
            "Directory or URL of an index that `touchfs index --output` has written. "
            "[default: .touchfs-index/ next to remote data]"
        ),
    )
    @_store_options
    @wraps(function)
    def command(index_prefix: str | None = None, **others: Any) -> Any:
        if index_prefix is not None:
            os.environ[INDEX_VARIABLE] = Location.parse(index_prefix).absolute.path
        return function(**others)

    return command


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that read shards without an index. The command gets none of them."""

    @_store_options
    @scratch_options
    @wraps(function)
    def command(timeout: float | None, **others: Any) -> Any:
        return function(**others)

    return command


def _store_options(function: Callable[..., Any]) -> Callable[..., Any]:
    @remote_option(
        "--storage-option",
        "storage_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="fsspec option for remote storage. Can be repeated. Put secrets into --options-file.",
    )
    @remote_option(
        "--options-file",
        type=click.Path(),
        metavar="FILE",
        help="JSON with fsspec options by scheme, secrets too. Must be readable by you only (chmod 600).",
    )
    @remote_option(
        "--timeout",
        type=Seconds(0.1),
        metavar="SECONDS",
        help=(
            "Give up on data that does not arrive within this time. "
            f"[default: {TIMEOUT_SECONDS:.0f} for remote data, else never]"
        ),
    )
    @remote_option(
        "--revalidate",
        type=Seconds(0),
        metavar="SECONDS",
        help=f"How often to check a remote file for changes. [default: {REVALIDATE_SECONDS:.0f}]",
    )
    @remote_option(
        "--assume-immutable",
        is_flag=True,
        help="Keep remote data even if it has neither etags nor times that show a change.",
    )
    @remote_option(
        "--requests",
        type=click.IntRange(1),
        metavar="N",
        help=f"At most N requests for remote data at once, shared by the workers of a mount. [default: {REQUESTS}]",
    )
    @wraps(function)
    def command(
        storage_options: tuple[str, ...],
        options_file: str | None,
        timeout: float | None,
        revalidate: float | None,
        assume_immutable: bool,
        requests: int | None,
        **others: Any,
    ) -> Any:
        if storage_options:
            os.environ[OPTIONS_VARIABLE] = json.dumps(dict(map(parse_option, storage_options)))
        if options_file is not None:
            os.environ[FILE_VARIABLE] = os.path.abspath(options_file)
        if timeout is not None:
            os.environ[TIMEOUT_VARIABLE] = str(timeout)
        if revalidate is not None:
            os.environ[REVALIDATE_VARIABLE] = str(revalidate)
        if assume_immutable:
            os.environ[IMMUTABLE_VARIABLE] = "1"
        if requests is not None:
            os.environ[REQUESTS_VARIABLE] = str(requests)
        return function(**others, timeout=timeout)

    return command


def parse_rate(text: str) -> int:
    """Bytes a second, such as 50M. Raises UsageError."""
    rate = parse_size(text)
    if not rate:
        raise UsageError("a rate must be more than 0")
    return rate
