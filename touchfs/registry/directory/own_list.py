"""What a directory says its data is, in a file of the tool that wrote it.

    `_metadata.json`      a cache of Arrow shards
    `_delta_log/`         a Delta table: `touchfs.registry.directory.delta`
    `state.json`          `save_to_disk` of Hugging Face datasets, beside `dataset_info.json`
    `dataset_dict.json`   the same for several splits, each a directory
    `dataset_info.json`   alone: a cache of `load_dataset`, whose files are called `NAME-SPLIT[-00000-of-00002].arrow`
    `snapshots/`          a repository in the cache of the Hugging Face Hub; `refs/main` names one of the revisions

Iceberg and Hudi tables have lists that we do not read. Their files alone would show rows that were removed, so they are
refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from types import MappingProxyType
from typing import Any, NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.json_text import parse_json
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.registry.directory.delta import LOG, delta_files
from touchfs.source.data import DATA
from touchfs.source.store import Store, StoredEntry
from touchfs.tables.shards.files import listed_shards

STATE, INFO, SPLITS, SNAPSHOTS = "state.json", "dataset_info.json", "dataset_dict.json", "snapshots"
# Larger than the description of any dataset.
_TEXT_MAX = 1 << 24
_REVISION_MAX = 256


class OwnList(NamedTuple):
    """The data of a directory: relative paths of files, in order, and of directories to look into.

    All other shards are left out for the reason, and so are the directories `others`. `splits` has the split of each of
    the files or directories, if the list names splits.
    """

    reason: str
    files: Sequence[str] = ()
    directories: Sequence[str] = ()
    others: Sequence[str] = ()
    splits: Mapping[str, str] = MappingProxyType({})


def cache_list(directory: str) -> OwnList | None:
    """The list of a directory with `_metadata.json`; None if it is no cache of Arrow shards, or a damaged one."""
    cached = listed_shards(directory)
    return None if cached is None else OwnList(f"not in {METADATA_FILE}", [os.path.basename(path) for path in cached])


def read_own_list(directory: str, entries: Iterable[StoredEntry], store: Store) -> OwnList | None:
    """The list that a directory with these entries has; None if it has none.

    Raises FormatError if it is damaged, of a kind that we do not read or names something elsewhere, and SourceError.
    """
    found = {entry.name: entry for entry in entries}
    if LOG in found and found[LOG].is_dir():
        return OwnList("not in this version of the Delta table", delta_files(directory, store))
    if ".hoodie" in found and found[".hoodie"].is_dir():
        raise FormatError("is a Hudi table, which touchfs does not read: export it as Parquet", path=directory)
    if "metadata" in found and found["metadata"].is_dir():
        names = [entry.name for entry in store.list(os.path.join(directory, "metadata"))]
        if any(name.endswith((".metadata.json", ".metadata.json.gz")) for name in names):
            message = "is an Iceberg table, which touchfs does not read: export it as Parquet"
            raise FormatError(message, path=directory)
    if STATE in found and INFO in found:
        return _saved(directory)
    if SPLITS in found:
        return _splits(directory, found)
    if INFO in found:
        return _built(directory, found)
    if SNAPSHOTS in found and not found.keys().isdisjoint(("blobs", "refs")):
        return _revision(directory, found, store)
    return None


def _saved(directory: str) -> OwnList | None:
    state = _read_object(directory, STATE)
    files = state.get("_data_files")
    if files is None:
        return None
    if state.get("_indices_data_files") or state.get("_indices_files"):
        message = f"{STATE} selects rows by indices, as old versions do: load it and save it again"
        raise FormatError(message, path=directory)
    names = [each.get("filename") if isinstance(each, dict) else None for each in _list(files, STATE, directory)]
    return OwnList(f"not in {STATE}", _plain(names, STATE, directory))


def _splits(directory: str, found: Mapping[str, StoredEntry]) -> OwnList | None:
    listed = _read_object(directory, SPLITS).get("splits")
    if listed is None:
        return None
    splits = sorted(_plain(_list(listed, SPLITS, directory), SPLITS, directory))
    others = sorted(name for name, entry in found.items() if name not in splits and name[0] != "." and entry.is_dir())
    return OwnList(f"not in {SPLITS}", (), splits, others, {name: name for name in splits})


def _built(directory: str, found: Mapping[str, StoredEntry]) -> OwnList | None:
    """The files of the splits that a description names; None if there are none, as it describes other files."""
    splits = _read_object(directory, INFO).get("splits")
    if not isinstance(splits, dict):
        return None
    data: dict[str, str] = {}
    for split, facts in splits.items():
        name = facts.get("dataset_name") if isinstance(facts, dict) else None
        prefix = f"{re.escape(name)}-" if isinstance(name, str) else "(?:.+-)?"
        pattern = rf"{prefix}{re.escape(split)}(?:-\d{{5,}}-of-\d{{5,}})?\.(?:arrow|parquet)"
        is_data = re.compile(pattern, re.DOTALL).fullmatch
        data |= {name: split for name, entry in found.items() if is_data(name) and entry.is_file()}
    return OwnList(f"no file of a split of {INFO}", sorted(data), splits=data) if data else None


def _revision(directory: str, found: Mapping[str, StoredEntry], store: Store) -> OwnList:
    place = os.path.join(directory, SNAPSHOTS)
    revisions = sorted(entry.name for entry in store.list(place) if entry.is_dir())
    others = list[str]()
    if len(revisions) > 1:
        main = ""
        if "refs" in found and any(entry.name == "main" for entry in store.list(os.path.join(directory, "refs"))):
            main = _read(os.path.join(directory, "refs", "main"), _REVISION_MAX).decode(errors="replace").strip()
        if main not in revisions:
            names = ", ".join(revisions[:3])
            message = f"has {len(revisions):,} revisions, and refs/main names none: name one, as {SNAPSHOTS}/{names}"
            raise FormatError(message, path=directory)
        revisions, others = [main], [f"{SNAPSHOTS}/{name}" for name in revisions if name != main]
    chosen = [f"{SNAPSHOTS}/{name}" for name in revisions]
    return OwnList("not the revision of refs/main", (), chosen, others)


def _plain(names: Sequence[Any], listing: str, directory: str) -> list[str]:
    """The names, each of which is in the directory itself. Raises FormatError otherwise."""
    for name in names:
        if not isinstance(name, str) or "/" in name or "\0" in name or name in ("", ".", ".."):
            raise FormatError(f"{listing} names {str(name)[:80]!r}, which is no name of a file here", path=directory)
    return list(names)


def _list(value: Any, listing: str, directory: str) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"{listing} is damaged: it has no list of the data", path=directory)
    return value


def _read_object(directory: str, name: str) -> dict[str, Any]:
    """The JSON object in a file; an empty one if the file has something else. Raises FormatError if it is damaged."""
    path = os.path.join(directory, name)
    try:
        value = parse_json(_read(path, _TEXT_MAX))
    except (ValueError, RecursionError) as error:
        message = f"is damaged, so the files of its directory are not known: {error}"
        raise FormatError(message, path=path) from error
    return value if isinstance(value, dict) else {}


def _read(path: str, limit: int) -> bytes:
    with closing(DATA.open(path)) as file:
        file.open()  # unlike a stream, it does not wait at a pipe
        if file.size > limit:
            raise FormatError(f"has over {limit:,} bytes", path=path)
        return file.read(0, file.size)
