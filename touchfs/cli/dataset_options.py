"""Options for reading a dataset, shared by commands."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from shlex import quote
from typing import Any

import click
from click.core import ParameterSource

from touchfs.cli.command import Decorator, cache_option, dataset_option
from touchfs.cli.limit_options import limit_options
from touchfs.cli.progress import progress_option
from touchfs.cli.remote_options import remote_options
from touchfs.cli.scratch_options import scratch_options
from touchfs.core.errors import FormatError, map_os_errors
from touchfs.core.location import Location, absolute_directory, parse_audio_root
from touchfs.indexing.overlays.named import spell_overlay
from touchfs.limits import Limits
from touchfs.shard.options import (
    ERROR,
    FIRST_DOT,
    FIRST_RULE,
    FLAT,
    INTERLEAVED,
    ITEM_POLICIES,
    LAST_DOT,
    NESTED,
    SEGMENT_RULES,
    Decompress,
    Options,
)
from touchfs.source.named.addresses import is_address
from touchfs.source.named.locations import Locations


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading a dataset. Its index is in the user's cache, or `in_place`, or `in_memory`.

    `timeout_seconds` is how long a read may take that gets no answer, if the user limits that.
    """

    options: Options
    in_place: bool
    in_memory: bool = False
    timeout_seconds: float | None = None


# Options without which another command would read another dataset, or none.
_REPEATED = frozenset(
    (
        *("sample_rate", "key_rule", "segments", "audio_root", "split", "features", "layout", "key_column", "overlays"),
        *("sample_kind", "on_error", "allowed_locations", "scratch_dir", "lower_scratch_dir", "no_decompress"),
        *("in_place", "trust", "max_json", "max_decoded", "max_members", "storage_options", "options_file"),
    )
)
_FEATURES_FILE = "touchfs.features_file"


def repeated_options() -> str:
    """The options of the running command that another one needs to read the same dataset, with a space before each."""
    context = click.get_current_context()
    words = list[str]()
    for option in context.command.params:
        name = option.name or ""
        if name not in _REPEATED or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.meta[_FEATURES_FILE] if name == "features" else context.params[name]
        if isinstance(value, bool):
            words.append(option.opts[0])
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += option.opts[0], quote(str(each))
    return "".join(f" {word}" for word in words)


sample_rate_option = dataset_option(
    "--sample-rate", type=click.IntRange(1), metavar="HZ", help="Sample rate of audio without a rate."
)
key_rule_option = dataset_option(
    "--key-rule",
    type=click.Choice([FIRST_DOT, LAST_DOT]),
    default=FIRST_DOT,
    help="The key of a tar member ends at its first dot (as in WebDataset) or its last (as in WeNet).",
)
segments_option = dataset_option(
    "--segments",
    type=click.Choice(SEGMENT_RULES),
    default=FIRST_RULE,
    metavar="RULE",
    show_default=False,
    help="Where segments come from: a rule of docs/segments.md, or none. [default: the first that finds some]",
)


def _audio_root(context: click.Context, parameter: click.Parameter, root: str | None) -> str | None:
    if root is None:
        return None
    directory, was = parse_audio_root(root)
    if not Location.of(directory).is_url:
        click.Path(exists=True, file_okay=False).convert(directory if was else root, parameter, context)
    return f"{directory}={was}" if was else directory


audio_root_option = dataset_option(
    "--audio-root",
    callback=_audio_root,
    metavar="DIR[=OLD]",
    help="Directory or URL of audio that JSON lines and Kaldi's directories name (as OLD). No file outside is opened.",
)


def with_audio_root(limits: Limits, text: str | None) -> Limits:
    return limits if text is None else limits.with_audio(*parse_audio_root(text))


split_option = dataset_option(
    "--split", metavar="NAME", help="Read only the shards of this split, such as train. [default: all shards]"
)


def _spelled(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(spell_overlay, given))


overlay_option = dataset_option(
    "--overlay",
    "overlays",
    multiple=True,
    callback=_spelled,
    metavar="FILE[:COLUMN]",
    help="Add the columns of a .parquet or .jsonl to the samples with its keys, which COLUMN has. Can be repeated.",
)

in_place_option = cache_option("--in-place", is_flag=True, help="Keep the index in .touchfs-index/ next to the data.")


def _features_text(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    if path is None:
        return None
    from touchfs.features.json_form import parse_features

    context.meta[_FEATURES_FILE] = path
    with map_os_errors(path), open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    try:
        parse_features(text)
    except FormatError as error:
        raise error.at(path) from None
    return text


def features_option(*, required: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--features`. The command gets the text of the file, or None."""
    return (click.option if required else dataset_option)(
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
        dataset_option(
            "--layout",
            type=click.Choice([FLAT, NESTED]),
            help="Files of a table: KEY.EXT, or KEY/COLUMN.EXT. [default: flat if one column has files]",
        ),
        dataset_option(
            "--key",
            "key_column",
            metavar="COLUMN",
            help="Column with the keys of a table's rows. [default: the first of id, key, __key__]",
        ),
    ):
        function = decorate(function)
    return function


def ids_option(option: Callable[..., Decorator] = click.option) -> Decorator:
    """`--ids`, as `option` declares options: for commands whose filters others write, who name no files."""
    return option(
        "--ids",
        multiple=True,
        metavar="NAME=FILE",
        help="A list of ids that filters may name: key in @NAME. FILE:COLUMN names a column. Can be repeated.",
    )


def dataset_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of commands that open a dataset. The command gets them as one argument, `read_options`."""
    kind = dataset_option(
        "--kind",
        "sample_kind",
        type=click.Choice([INTERLEAVED]),
        help="Treat samples as interleaved text and images. [default: decided by each shard's first sample]",
    )
    return kind(dataset_options_but_kind(function))


def dataset_options_but_kind(function: Callable[..., Any]) -> Callable[..., Any]:
    """Like `dataset_options`, for a command with another option `--kind`."""

    @sample_rate_option
    @key_rule_option
    @segments_option
    @audio_root_option
    @split_option
    @overlay_option
    @table_options
    @interleaved_options
    @remote_options
    @scratch_options
    @cache_option("--no-decompress", is_flag=True, help="Do not decompress shards; use those decompressed already.")
    @in_place_option
    @limit_options("json", "decoded", "members", "decode_seconds")
    @progress_option
    @wraps(function)
    def command(
        sample_rate: int | None,
        key_rule: str,
        segments: str,
        audio_root: str | None,
        split: str | None,
        overlays: tuple[str, ...],
        key_column: str | None,
        layout: str | None,
        features: str | None,
        on_error: str,
        allowed_locations: tuple[str, ...],
        no_decompress: bool,
        in_place: bool,
        limits: Limits,
        timeout: float | None,
        sample_kind: str | None = None,
        **others: Any,
    ) -> Any:
        decompress = Decompress.NEVER if no_decompress else Decompress.NOW
        limits = with_audio_root(replace(limits, locations=allowed_locations), audio_root)
        tables = key_column, layout, features
        options = Options(sample_rate, key_rule, decompress, limits, segments, *tables, sample_kind, on_error, split)
        options = replace(options, overlays=overlays)
        return function(**others, read_options=ReadOptions(options, in_place, timeout_seconds=timeout))

    return command


def _absolute_locations(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    Locations(allowed=given)  # raises UsageError for what is no location
    return tuple(absolute_directory(each) if is_address(each) else os.path.abspath(each) for each in given)


def interleaved_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options for interleaved samples but `--kind`. The command gets `on_error` and `allowed_locations`."""
    for decorate in (
        dataset_option(
            "--allow-location",
            "allowed_locations",
            multiple=True,
            callback=_absolute_locations,
            metavar="PREFIX",
            help="Directory or URL below which files may lie that interleaved samples name. Can be repeated.",
        ),
        dataset_option(
            "--on-error",
            type=click.Choice(ITEM_POLICIES),
            default=ERROR,
            show_default=True,
            help="What to do with an item of interleaved/ whose bytes cannot be found.",
        ),
    ):
        function = decorate(function)
    return function
