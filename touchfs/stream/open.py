"""From a source to the streams of its shards."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from touchfs.errors import UsageError
from touchfs.indexing import unique_names
from touchfs.shard.find import find_shards
from touchfs.shard.open import fingerprint
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.other_formats import refuse_remote
from touchfs.shard.shar import files as shar_files
from touchfs.source.lines import PIPE
from touchfs.stream.base import Stream
from touchfs.stream.lines import LineStream
from touchfs.stream.shar import PIPED, SharStream, needs_staging, plain_name
from touchfs.stream.shard import ShardStream


def open_streams(source: str, options: Options = DEFAULT) -> list[Stream]:
    """All that is a source of `touchfs.indexing.open_dataset`, and `NAME.jsonl.gz` and `pipe:COMMAND` besides."""
    if source.startswith(PIPE):
        return [LineStream(source, PIPE, options.limits.json)]
    refuse_remote(source)
    source = os.path.abspath(source)
    is_lines = source.endswith(".jsonl.gz") and not shar_files.is_shard(source)
    paths = [source] if is_lines else [os.path.abspath(path) for path in find_shards(source)]
    return [_open(path, name, options) for path, name in zip(paths, _names(paths), strict=True)]


def open_shar_streams(fields: Mapping[str, Sequence[str]], options: Options = DEFAULT) -> list[Stream]:
    """The shards of a Lhotse Shar whose n-th one has the n-th file of each field; `cuts` is the first field."""
    shards = [
        # Called alike, whatever they are called where they lie.
        {_called(field, paths[i]): paths[i] for field, paths in fields.items()}
        for i in range(len(fields[shar_files.CUTS]))
    ]
    return [
        SharStream(files, name, options) for files, name in zip(shards, _names(fields[shar_files.CUTS]), strict=True)
    ]


def _open(path: str, name: str, options: Options) -> Stream:
    if shar_files.is_shard(path):
        directory, cuts = os.path.split(path)
        there = fingerprint(path)
        # Of a file that is there compressed and not, the one that is not.
        names = [each for each in there if plain_name(each) == each or plain_name(each) not in there]
        files = {each: os.path.join(directory, each) for each in [cuts, *names]}
        return SharStream(files, name, options) if needs_staging(files) else ShardStream(path, name, options)
    if path.endswith((".jsonl", ".jsonl.gz")):
        return LineStream(path, name, options.limits.json)
    return ShardStream(path, name, options)


def _called(field: str, path: str) -> str:
    if path.startswith(PIPE):
        return field + (".jsonl" if field == shar_files.CUTS else PIPED)
    name = os.path.basename(path)
    for suffix in (".jsonl", ".jsonl.gz", ".tar"):
        if name.endswith(suffix):
            return field + suffix
    raise UsageError("is no file of a field: expected .jsonl, .jsonl.gz, .tar or pipe:COMMAND", path=path)


def _names(paths: Sequence[str]) -> list[str]:
    """Those that the shards have in the tree; of compressed ones, that they would have. Of commands only that."""
    told = [PIPE if path.startswith(PIPE) else path.removesuffix(".gz") for path in paths]
    return [os.fsdecode(name) for name in unique_names(told)]
