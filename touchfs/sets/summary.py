"""What a set tells about itself: its files, the fields of its JSON, and its columns.

Files are those that catalogs list. Fields are those of the first few samples, so that nothing has to read all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from touchfs.core.errors import TouchfsError
from touchfs.core.location import Location
from touchfs.dataset import counted
from touchfs.dataset.info import stored_columns
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples
from touchfs.dataset.shard import Shard
from touchfs.registry.containers import ARROW, PARQUET
from touchfs.select.concatenation import SetSamples, datasets_of
from touchfs.sets.sample_table import FACTS, facts_among

# Samples whose files and fields stand for those of all.
_FIRST = 8
_SHOWN = 12


def extensions_of(samples: SetSamples) -> list[str]:
    """The extensions of the files of samples. Where catalogs do not list them, they are those of the first samples."""
    found: set[str] = set()
    if samples.view == DatasetSamples.view:
        found = {suffix[1:] for shard in _shards_of(samples) for suffix in shard.endings.suffixes}
    return sorted(found or {extension for sample in _first(samples) for extension in sample})


def fields_of(samples: SetSamples) -> dict[str, str]:
    """The types of the fields of the `.json` of the first samples, by name. Damaged ones are left out."""
    found: dict[str, str] = {}
    for sample in _first(samples):
        with suppress(TouchfsError):
            value = sample.json() if sample.json_name is not None else None
            for name, each in value.items() if isinstance(value, dict) else ():
                if found.get(name, "null") == "null":
                    found[name] = _type_of(each)
    return found


def features_of(samples: SetSamples, fields: Callable[[], dict[str, str]]) -> dict[str, str]:
    """The types of the columns of a table of samples by their names: those of a table, else by the first samples, of
    which `fields` returns those of the JSON.
    """
    if are_stored_rows(samples):
        return {name: kind for dataset in datasets_of(samples) for name, kind in stored_columns(dataset).items()}
    facts = dict.fromkeys(facts_among(extensions_of(samples)), "string")
    for name, fact in FACTS.items():
        if name in facts and (kinds := {_type_of(fact(sample)) for sample in _first(samples)} - {"null"}):
            facts[name] = kinds.pop() if len(kinds) == 1 else "string"
    return {**facts, **{name: kind for name, kind in fields().items() if name not in facts}}


def are_stored_rows(samples: SetSamples) -> bool:
    """True if all samples are rows of tables, and not the videos of a Lance dataset of frames."""
    shards = _shards_of(samples)
    if samples.view != DatasetSamples.view or not all(shard.known.is_table for shard in shards):
        return False
    if not (of_lance := [shard for shard in shards if shard.container not in (ARROW, PARQUET)]):
        return True
    from touchfs.bulk.convert.input import InputShard
    from touchfs.bulk.tables.lance_batches import is_lance_table

    limits = datasets_of(samples)[0].limits
    return all(is_lance_table(InputShard(shard.path, shard.files), limits) for shard in of_lance)


def are_at_hand(samples: SetSamples) -> bool:
    """True if reading samples asks no other machine, and decompresses no file as a whole."""
    shards = _shards_of(samples)
    return not any(Location.of(shard.path).is_url or shard.known.compressed_files for shard in shards)


def described(samples: SetSamples, fields: list[str]) -> str:
    """Counts, files and fields, in a line."""
    datasets = datasets_of(samples)
    whole = sum(each.samples for each in datasets)
    if samples.view != DatasetSamples.view:
        count = f"{len(samples)} {samples.view}"
    else:
        count = counted(whole, "sample") if len(samples) == whole else f"{len(samples)} of {counted(whole, 'sample')}"
    parts = [count, counted(sum(len(each.listed) for each in datasets), "shard")]
    parts += [
        f"{what}: {_listed(names)}" for what, names in (("files", extensions_of(samples)), ("fields", fields)) if names
    ]
    return ", ".join(parts)


def _listed(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return " ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _shards_of(samples: SetSamples) -> list[Shard]:
    return [shard for dataset in datasets_of(samples) for shard in dataset.indexed_so_far]


def _first(samples: SetSamples) -> Iterator[Sample]:
    return map(samples.__getitem__, range(min(_FIRST, len(samples))))


def _type_of(value: Any) -> str:
    names = {bool: "bool", int: "int64", float: "float64", str: "string", list: "list", dict: "struct"}
    return names.get(type(value), "null")
