"""Options for opening a dataset, and DATASET[:PATH] arguments, shared by commands."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from shlex import quote
from typing import Any

import click

from touchfs.cli.interleaved_options import interleaved_options
from touchfs.cli.progress import progress_bar, progress_option
from touchfs.cli.remote_options import remote_options
from touchfs.cli.seconds import Seconds
from touchfs.dataset import Dataset
from touchfs.errors import FormatError, NotFoundError, UsageError, map_os_errors
from touchfs.indexing import open_dataset
from touchfs.limits import LIMITS, Limits, parse_size
from touchfs.posix.paths import absolute_directory, check_url, is_url
from touchfs.posix.paths.chains import InArchive, parse_in_archive
from touchfs.posix.trust import TRUST_VARIABLE, parse_users
from touchfs.shard.lists.members import find_members
from touchfs.shard.options import (
    FIRST_DOT,
    FIRST_RULE,
    FLAT,
    INTERLEAVED,
    LAST_DOT,
    NESTED,
    SEGMENT_RULES,
    Decompress,
    Options,
)
from touchfs.source.data import find_type
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, LOWER_VARIABLE, SIZE_VARIABLE, Scratch
from touchfs.tree.tree import Entry, Tree


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a dataset, and where its index is: in the user's cache, or `in_place`, or `in_memory`.

    `timeout_seconds` is how long a read may take that gets no answer, if the user limits that.
    """

    options: Options
    in_place: bool
    in_memory: bool = False
    timeout_seconds: float | None = None


# A URL with the port of its host, which may be `[::1]`, and behind a colon a path in the dataset.
_URL = re.compile(r"([^:/]+://(?:\[[0-9a-fA-F:.]+\]|[^/:]*)(?::[0-9]+)?(?:/[^:]*)?)(?::(.*))?", re.DOTALL)
# The type of datasets and mount points. click does not check them: `mount` reports errors with its own exit statuses.
PATH = click.Path(readable=False)


class Size(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """A number of bytes, for example 800M or 50G; not less than `minimum`."""

    name = "SIZE"

    def __init__(self, minimum: int = 0) -> None:
        self._minimum = minimum

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        """The number of bytes. Fails with a usage error."""
        try:
            size = value if isinstance(value, int) else parse_size(value)
        except UsageError as error:
            self.fail(error.message, parameter, context)
        if size < self._minimum:
            self.fail(f"{value!r} is less than {self._minimum}", parameter, context)
        return size


def _limit(name: str, default: int, description: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(name, type=Size(1), default=f"{default // 10**6}M", show_default=True, help=description)


_LIMITS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "json": _limit("--max-json", LIMITS.json, "Maximum size of a JSON line or a sample's metainfo."),
    "decoded": _limit("--max-decoded", LIMITS.decoded, "Maximum decoded size of data that is decoded as a whole."),
    "window": _limit("--decode-window", LIMITS.window, "Amount of a recording to decode at a time."),
    "decode_seconds": click.option(
        "--decode-timeout",
        type=Seconds(0, min_open=True),
        default=LIMITS.decode_seconds,
        show_default=True,
        metavar="SECONDS",
        help="Time after which a part of a recording counts as impossible to decode.",
    ),
}


def limit_options(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options for some of the limits. The command gets them as one argument, `limits`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(
            max_json: int = LIMITS.json,
            max_decoded: int = LIMITS.decoded,
            decode_window: int = LIMITS.window,
            decode_timeout: float = LIMITS.decode_seconds,
            **others: Any,
        ) -> Any:
            return function(**others, limits=Limits(max_json, max_decoded, decode_window, decode_timeout))

        decorated: Callable[..., Any] = command
        for name in reversed(names):
            decorated = _LIMITS[name](decorated)
        return decorated

    return decorate


segments_option = click.option(
    "--segments",
    type=click.Choice(SEGMENT_RULES),
    default=FIRST_RULE,
    metavar="RULE",
    show_default=False,
    help="Where segments come from: a rule of docs/segments.md, or none. [default: the first that finds some]",
)


def _audio_root(context: click.Context, parameter: click.Parameter, root: str | None) -> str | None:
    if root is not None and not is_url(root):
        click.Path(exists=True, file_okay=False).convert(root, parameter, context)
    return None if root is None else absolute_directory(root)


audio_root_option = click.option(
    "--audio-root",
    callback=_audio_root,
    metavar="DIR",
    help="Directory or URL of audio that JSON lines and Kaldi's directories name. No file outside is opened.",
)


def _features_text(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    if path is None:
        return None
    from touchfs.features.json_form import parse_features

    with map_os_errors(path), open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    try:
        parse_features(text)
    except FormatError as error:
        raise error.at(path) from None
    return text


def features_option(*, required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--features`. The command gets the text of the file, or None."""
    return click.option(
        "--features",
        type=click.Path(exists=True, dir_okay=False),
        required=required,
        callback=_features_text,
        metavar="FILE",
        help="JSON with the types of a table's columns (docs/caches.md).",
    )


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options for tables. The command gets them as `key_column`, `layout` and `features`."""
    for decorate in (
        features_option(),
        click.option(
            "--layout",
            type=click.Choice([FLAT, NESTED]),
            help="Files of a table: KEY.EXT, or KEY/COLUMN.EXT. [default: flat if one column has files]",
        ),
        click.option(
            "--key",
            "key_column",
            metavar="COLUMN",
            help="Column with the keys of a table's rows. [default: the first of id, key, __key__]",
        ),
    ):
        function = decorate(function)
    return function


def dataset_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that open a dataset. The command gets them as one argument, `read_options`."""
    kind = click.option(
        "--kind",
        "sample_kind",
        type=click.Choice([INTERLEAVED]),
        help="Kind of the samples. [default: by the first of each shard]",
    )
    return kind(dataset_options_but_kind(function))


def dataset_options_but_kind(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `dataset_options`, for a command with another option `--kind`."""

    @click.option("--sample-rate", type=click.IntRange(1), metavar="HZ", help="Sample rate of audio without a rate.")
    @click.option(
        "--key-rule",
        type=click.Choice([FIRST_DOT, LAST_DOT]),
        default=FIRST_DOT,
        help="The key of a tar member ends at its first dot (as in WebDataset) or its last (as in WeNet).",
    )
    @segments_option
    @audio_root_option
    @table_options
    @interleaved_options
    @remote_options
    @click.option(
        "--scratch-dir",
        type=click.Path(),
        help="Directory for decompressed shards and decoded recordings. [default: the user's cache]",
    )
    @click.option(
        "--scratch-size",
        metavar="SIZE",
        help="Maximum size of that directory, for example 200G. [default: 50G, or half of the free disk space]",
    )
    @click.option(
        "--lower-scratch-dir",
        type=click.Path(),
        help="Read also what others have put into this scratch directory, and never write there.",
    )
    @click.option("--no-decompress", is_flag=True, help="Do not decompress shards; use those decompressed already.")
    @click.option("--in-place", is_flag=True, help="Keep the index in .touchfs-index/ beside the data.")
    @click.option(
        "--trust",
        metavar="USER",
        multiple=True,
        help="Also trust indexes and states that USER wrote. [default: root, you; with --in-place the data's owner]",
    )
    @limit_options("json", "decoded", "window", "decode_seconds")
    @progress_option
    @wraps(function)
    def command(
        sample_rate: int | None,
        key_rule: str,
        segments: str,
        audio_root: str | None,
        key_column: str | None,
        layout: str | None,
        features: str | None,
        on_error: str,
        allowed_locations: tuple[str, ...],
        scratch_dir: str | None,
        scratch_size: str | None,
        lower_scratch_dir: str | None,
        no_decompress: bool,
        in_place: bool,
        trust: tuple[str, ...],
        limits: Limits,
        timeout: float | None,
        sample_kind: str | None = None,
        **others: Any,
    ) -> Any:
        # Set in the environment, so that all processes that we start use the same store.
        if scratch_dir is not None:
            os.environ[DIRECTORY_VARIABLE] = os.path.abspath(scratch_dir)
        if scratch_size is not None:
            os.environ[SIZE_VARIABLE] = str(parse_size(scratch_size))
        if trust:
            os.environ[TRUST_VARIABLE] = parse_users(trust)
        if lower_scratch_dir is not None:
            os.environ[LOWER_VARIABLE] = os.path.abspath(lower_scratch_dir)
            Scratch.configured()  # says what is wrong with it
        decompress = Decompress.NEVER if no_decompress else Decompress.NOW
        limits = replace(limits, audio_root=audio_root, locations=allowed_locations)
        tables = key_column, layout, features
        options = Options(sample_rate, key_rule, decompress, limits, segments, *tables, sample_kind, on_error)
        return function(**others, read_options=ReadOptions(options, in_place, timeout_seconds=timeout))

    return command


def open_indexed(
    path: str, read_options: ReadOptions, patience_seconds: float | None = None, *, must_keep: bool = False
) -> Dataset:
    """Open a dataset. Indexes it first if necessary, and shows progress meanwhile."""
    with progress_bar("indexing") as progress:
        return open_dataset(
            path,
            options=read_options.options,
            in_place=read_options.in_place,
            in_memory=read_options.in_memory,
            must_keep=must_keep,
            progress=progress,
            preparing=progress,
            finding_items=progress,
            patience_seconds=patience_seconds,
        )


def open_tree(location: str, read_options: ReadOptions) -> tuple[Tree, Entry, str]:
    """The tree of DATASET, and the entry and path of PATH in it, by default the root. Raises NotFoundError."""
    name, path = _split(location)
    dataset = open_indexed(name, read_options)
    # Without a mount inode numbers are internal, so positions serve as shard ids.
    tree = Tree(dataset, range(1, len(dataset.shards) + 1))
    try:
        return tree, tree.resolve(path), path.strip("/")
    except NotFoundError as error:
        raise NotFoundError(
            f"{error.message}; `touchfs ls {quote(name)}` shows what there is", path=location
        ) from error


def _split(location: str) -> tuple[str, str]:
    """Split DATASET[:PATH]. DATASET may contain colons: the longest one that exists is taken. A prefix of shard files
    exists if its index does, and a name with braces if a member does. A URL has colons only before its path, and nobody
    is asked whether it exists. A chain of URLs ends with its archive.
    """
    if (place := parse_in_archive(location)) is not None and not os.path.lexists(location):
        if location.startswith("zip+"):  # the form that ends with the name
            name, _, path = place.name.partition(":")
            return InArchive(place.archive, name).path, path
        archive, path = _split(place.archive)
        return InArchive(archive, place.name).chain, path
    check_url(location)
    if is_url(location) and (match := _URL.fullmatch(location)):
        return match[1], match[2] or ""
    if _exists(location):
        return location, ""
    parts = location.split(":")
    for count in range(len(parts) - 1, 0, -1):
        name = ":".join(parts[:count])
        if _exists(name):
            return name, ":".join(parts[count:])
    raise NotFoundError("no such file or directory", path=parts[0] or location)


def _exists(path: str) -> bool:
    return any(
        find_type(name) is not None or find_type(name + ".idx") is not None for name in find_members(path) or [path]
    )
