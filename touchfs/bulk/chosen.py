"""A choice of samples to convert: some of a dataset, or parts of them, as `segments/` and `merged/` show them."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import Samples
from touchfs.form.plain import BYTES
from touchfs.shard.sample import Field, StoredSample
from touchfs.view.file import ViewFile


class ChosenOfShard(NamedTuple):
    """What is chosen of a shard, in order: ordinals of its samples, or with `parts` positions of parts of them."""

    numbers: array[int]
    parts: Samples | None = None


# The options that choose, as plans of conversions have them.
CHOICE_WORDS = ("select", "where", "take", "overlay")


class Choice(NamedTuple):
    """The chosen samples of each shard, None for all, and the `words` that chose them, which a resumed conversion
    compares. `overlaid` has the path of each shard's catalog with the files of overlays, "" if it has none.
    """

    shards: list[ChosenOfShard] | None
    words: Mapping[str, Any]
    overlaid: Sequence[str]


def parts_of(chosen: ChosenOfShard, first: int) -> Iterator[tuple[StoredSample, Mapping[ViewFile, Content]]]:
    """The chosen parts from the `first` on: each as a sample without fields, with its files. One that cannot be
    shown has a problem instead.

    Its key is its path below the shard, without the extension, as in `talks/monday/0000`. That of a window of tokens
    also names the shard, as in `corpus/000123`.
    """
    if chosen.parts is None:
        return
    for number in chosen.numbers[first:]:
        part = chosen.parts[number]
        try:
            files, problem = _files(part), ""
        except FormatError as error:
            files, problem = {}, str(error)
        yield StoredSample(_key(part), part.ordinal, {}, problem=problem), files


def _key(part: Sample) -> str:
    extension = next(iter(part), None)
    if extension is None:
        return os.path.join(part.key, f"{part.number:04d}")
    path = part.path(extension).removeprefix(f"{part.view}/").removesuffix(f".{extension}")
    return path if path == part.key else path.removeprefix(f"{part.shard}/")


def _files(part: Sample) -> dict[ViewFile, Content]:
    contents = {extension: part.content(extension) for extension in part}
    sizes = {extension: content.size for extension, content in contents.items()}
    fields = {name: Field(name, "", 0, sizes[name], BYTES, name) for name in contents}
    return {ViewFile(name, fields[name]): content for name, content in contents.items()}
