"""Opening streams."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from touchfs.containers.shar import files as shar_files
from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.registry.containers import SHAR, Container
from touchfs.registry.find import find
from touchfs.registry.found import FoundShard, unique_names
from touchfs.registry.open import fingerprints, known_shard
from touchfs.shard.options import DEFAULT, Options
from touchfs.source.lines import PIPE
from touchfs.stream.base import Stream
from touchfs.stream.lines import LineStream
from touchfs.stream.shar import PIPED, SharStream, needs_staging, plain_name
from touchfs.stream.shard import ShardStream


def open_streams(source: str, options: Options = DEFAULT) -> list[Stream]:
    """Return the streams of a source's shards, in order.

    A source is a path as for `touchfs.indexing.open_dataset`, or `pipe:COMMAND`. Raises
    NotFoundError, FormatError and SourceError.
    """
    if source.startswith(PIPE):
        return [LineStream(source, PIPE, options.limits.json)]
    found = find(Location.parse(source).absolute, split=options.split).shards
    shards = [shard._replace(location=shard.location.absolute) for shard in found]
    names = _names((shard.location, shard.container) for shard in shards)
    of_shards = (replace(options, partition=shard.partition) for shard in shards)
    return [_open(*each) for each in zip(shards, names, of_shards, strict=True)]


def open_shar_streams(fields: Mapping[str, Sequence[str]], options: Options = DEFAULT) -> list[Stream]:
    """Return the streams of a Lhotse Shar. The n-th shard has the n-th file of each field; `cuts` is the first field.

    Raises UsageError for a file that cannot be one of a field.
    """
    shards = [
        # Named after the field, whatever the files' own names are.
        {_field_name(field, paths[i]): paths[i] for field, paths in fields.items()}
        for i in range(len(fields[shar_files.CUTS]))
    ]
    cuts = (PIPE if path.startswith(PIPE) else path for path in fields[shar_files.CUTS])
    names = _names((Location.of(path), known_shard(path, {}).container) for path in cuts)
    return [SharStream(files, name, options) for files, name in zip(shards, names, strict=True)]


def _open(shard: FoundShard, name: str, options: Options) -> Stream:
    path = shard.path
    if shard.container is SHAR:
        directory, cuts = os.path.split(path)
        found = fingerprints(path)
        # If a file exists both compressed and plain, use the plain one.
        names = [each for each in found if plain_name(each) == each or plain_name(each) not in found]
        files = {each: os.path.join(directory, each) for each in [cuts, *names]}
        return SharStream(files, name, options) if needs_staging(files) else ShardStream(path, name, options)
    if shard.container.is_streamed:
        return LineStream(path, name, options.limits.json)
    return ShardStream(path, name, options)


def _field_name(field: str, path: str) -> str:
    if path.startswith(PIPE):
        return field + (".jsonl" if field == shar_files.CUTS else PIPED)
    name = os.path.basename(path)
    for suffix in (".jsonl", ".jsonl.gz", ".tar"):
        if name.endswith(suffix):
            return field + suffix
    raise UsageError("is no file of a field: expected .jsonl, .jsonl.gz, .tar or pipe:COMMAND", path=path)


def _names(shards: Iterable[tuple[Location, Container]]) -> list[str]:
    return [os.fsdecode(name) for name in unique_names(shards)]
