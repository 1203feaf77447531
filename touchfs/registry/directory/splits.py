"""The splits of a dataset: which shards are for training, which for validation and which for tests.

A list of a directory says it (`touchfs.registry.directory.own_list`). Of shards without such a list, names do, as
Hugging Face's `datasets` infers splits from them (`datasets.data_files`). The first of these rules that finds a split
counts:

    data/SPLIT-00000-of-00010.parquet   any split, in `data/` of the dataset
    train/…, my-dev-2/…                 a directory at any depth with one of `_WORDS` between ends, `-._ ` and digits
    train-000.tar, my_dev.parquet       a file with one

A shard has one split. With the words of several it is of the first of them: `datasets` would show it in each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_NAMED = {
    split: re.compile(rf"(?:.*[-._ 0-9])?(?:{'|'.join(words)})(?:[-._ 0-9].*)?", re.DOTALL)
    for split, words in _WORDS.items()
}
# A revision in the cache of the Hugging Face Hub is a dataset by itself.
_NUMBERED = re.compile(r"(?:snapshots/[^/]+/)?data/([^/]+)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*")


def listed_splits(paths: Sequence[str], listed: Mapping[str, str]) -> list[str]:
    """The split of each path, "" for none, where `listed` has those of files and directories."""

    def split_of(path: str) -> str:
        while path not in listed:
            above = path.rpartition("/")[0]
            if not above:
                return ""
            path = above
        return listed[path]

    return [split_of(path) for path in paths]


def named_splits(places: Sequence[str]) -> list[str]:
    """The split of each shard by its name, "" for none. `places` are paths in the dataset; a `/` ends a directory."""
    for rule in (_by_number, _by_directory, _by_file):
        if any(found := [*map(rule, places)]):
            return found
    return [""] * len(places)


def in_order(splits: Iterable[str]) -> list[str]:
    """The names of splits, each once: train, validation, test, and then the others by name."""
    names = set(splits) - {""}
    return [name for name in _WORDS if name in names] + sorted(names - _WORDS.keys())


def _by_number(place: str) -> str:
    match = _NUMBERED.fullmatch(place)
    return "" if match is None else match[1]


def _by_directory(place: str) -> str:
    return _by_word(place.split("/")[:-1])


def _by_file(place: str) -> str:
    return _by_word(place.split("/")[-1:])


def _by_word(names: Sequence[str]) -> str:
    return next((split for split, named in _NAMED.items() if any(map(named.fullmatch, names))), "")
