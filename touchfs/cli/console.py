"""What commands share of sources: the options for opening one, and SOURCE[:PATH] arguments."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from shlex import quote
from typing import Any

import click

from touchfs.cli.progress import progress_bar, progress_option
from touchfs.dataset import Dataset
from touchfs.errors import NotFoundError, UsageError
from touchfs.indexing import open_dataset
from touchfs.limits import LIMITS, Limits
from touchfs.posix.trust import TRUST_VARIABLE, parse_users
from touchfs.shard.options import FIRST_DOT, LAST_DOT, Decompress, Options
from touchfs.shard.other_formats import exists, refuse_remote
from touchfs.source.scratch import DIRECTORY_VARIABLE, SIZE_VARIABLE, parse_size
from touchfs.tree.tree import Entry, Tree


@dataclass(frozen=True, slots=True)
class Reading:
    """How a source is to be read, and where its index is: in the user's cache, else `in_place` or `in_memory`."""

    options: Options
    in_place: bool
    in_memory: bool = False


# Of sources and mount points. Whether one can be read is told by what reads it, with an exit status of its own.
PATH = click.Path(readable=False)


class Size(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A number of bytes, as 800M or 50G."""

    name = "SIZE"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_size(value)
        except UsageError as error:
            self.fail(error.message, parameter, context)


def _limit(name: str, default: int, description: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, type=Size(), default=f"{default // 10**6}M", show_default=True, help=description)


_LIMITS = {
    "json": _limit("--max-json", LIMITS.json, "Longest JSON line, or metainfo of a sample, that is parsed."),
    "decoded": _limit("--max-decoded", LIMITS.decoded, "Largest result of what can only be decoded as a whole."),
    "window": _limit("--decode-window", LIMITS.window, "How much of a recording is decoded at a time."),
}


def limit_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options for some of the limits, which the command gets as one argument, `limits`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(
            max_json: int = LIMITS.json,
            max_decoded: int = LIMITS.decoded,
            decode_window: int = LIMITS.window,
            **others: Any,
        ) -> Any:
            return function(**others, limits=Limits(max_json, max_decoded, decode_window))

        decorated: Callable[..., Any] = command
        for name in reversed(names):
            decorated = _LIMITS[name](decorated)
        return decorated

    return decorate


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that opens a source, which gets them as one argument, `reading`."""

    @click.option("--sample-rate", type=click.IntRange(1), metavar="HZ", help="Rate of audio that names none.")
    @click.option(
        "--key-rule",
        type=click.Choice([FIRST_DOT, LAST_DOT]),
        default=FIRST_DOT,
        help="Where the key of a tar's member ends: at the first dot (WebDataset) or the last (WeNet).",
    )
    @click.option("--scratch-dir", type=click.Path(), help="For compressed shards. [default: the user's cache]")
    @click.option(
        "--scratch-size",
        metavar="SIZE",
        help="Bytes to keep there at most, as 200G. [default: 50G, or half of the disk that is free]",
    )
    @click.option("--no-decompress", is_flag=True, help="Do not decompress what is not decompressed there already.")
    @click.option("--in-place", is_flag=True, help="Keep the index in .touchfs-index/ beside the data.")
    @click.option(
        "--trust",
        metavar="USER",
        multiple=True,
        help="Believe indexes and states that this user wrote, too. [default: root, you, --in-place the data's owner]",
    )
    @limit_options("json", "decoded", "window")
    @progress_option
    @wraps(function)
    def command(
        sample_rate: int | None,
        key_rule: str,
        scratch_dir: str | None,
        scratch_size: str | None,
        no_decompress: bool,
        in_place: bool,
        trust: tuple[str, ...],
        limits: Limits,
        **others: Any,
    ) -> Any:
        # By the environment, as all processes that we start use the same store.
        if scratch_dir is not None:
            os.environ[DIRECTORY_VARIABLE] = os.path.abspath(scratch_dir)
        if scratch_size is not None:
            os.environ[SIZE_VARIABLE] = str(parse_size(scratch_size))
        if trust:
            os.environ[TRUST_VARIABLE] = parse_users(trust)
        options = Options(sample_rate, key_rule, Decompress.NEVER if no_decompress else Decompress.NOW, limits)
        return function(**others, reading=Reading(options, in_place))

    return command


def open_source(source: str, reading: Reading, patience_seconds: float | None = None) -> Dataset:
    """Open a source, showing progress where it has to be indexed first."""
    with progress_bar("indexing") as progress:
        return open_dataset(
            source,
            options=reading.options,
            in_place=reading.in_place,
            in_memory=reading.in_memory,
            progress=progress,
            preparing=progress,
            patience_seconds=patience_seconds,
        )


def open_tree(location: str, reading: Reading) -> tuple[Tree, Entry, str]:
    """The tree of SOURCE[:PATH], and the entry and path that PATH names; the root without one."""
    source, path = _split(location)
    dataset = open_source(source, reading)
    # Without a mount inode numbers go nowhere: positions serve as shard ids.
    tree = Tree(dataset, range(1, len(dataset.shards) + 1))
    try:
        return tree, tree.resolve(path), path.strip("/")
    except NotFoundError as error:
        raise NotFoundError(
            f"{error.message}; `touchfs ls {quote(source)}` shows what there is", path=location
        ) from error


def _split(location: str) -> tuple[str, str]:
    """SOURCE may hold colons: the longest one that exists counts. A prefix of shard files exists if its index does."""
    refuse_remote(location)
    if _exists(location):
        return location, ""
    parts = location.split(":")
    for count in range(len(parts) - 1, 0, -1):
        source = ":".join(parts[:count])
        if _exists(source):
            return source, ":".join(parts[count:])
    raise NotFoundError("no such file or directory", path=parts[0] or location)


def _exists(source: str) -> bool:
    return exists(source) or exists(source + ".idx")
