"""The statistics of a shard beside its catalog, so that the next look need not count.

If a file is damaged, not ours or of another version of the shard, the shard is counted again. Where nothing can be
written, nothing is kept.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from touchfs.core.errors import TouchfsError
from touchfs.core.names import hex_digest
from touchfs.dataset import Dataset
from touchfs.dataset.shard import Shard
from touchfs.posix.trust import atomic_own_file, open_trusted
from touchfs.statistics.catalogs import CatalogStatistics

_VERSION = 2
_MOST_BYTES = 1 << 20


def statistics_of(dataset: Dataset, shard: Shard) -> CatalogStatistics:
    """The statistics of a shard: those that are kept, or counted now. Raises FormatError and as `catalog_of`."""
    path = _path(shard)
    with suppress(TouchfsError, OSError, ValueError, TypeError, KeyError, RecursionError):
        return _read(path, shard)
    found = CatalogStatistics.of(dataset.catalog_of(shard))
    value = found.to_json()
    stored = {"version": _VERSION, "shard": shard.identity, "digest": _digest(value), "statistics": value}
    with suppress(TouchfsError, OSError), atomic_own_file(path) as file:
        file.write(json.dumps(stored).encode())
    return found


def _read(path: str, shard: Shard) -> CatalogStatistics:
    with open(open_trusted(path, shard.path), "rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("too large")
    stored = json.loads(data)
    value = stored["statistics"]
    if (stored["version"], stored["shard"], stored["digest"]) != (_VERSION, shard.identity, _digest(value)):
        raise ValueError("of another shard, or damaged")
    found = CatalogStatistics.from_json(value)
    if found.samples != shard.samples:
        raise ValueError("of other samples")
    return found


def _path(shard: Shard) -> str:
    """Beside the catalog, with its stem: so `touchfs storage` lists and removes it with that."""
    directory, name = os.path.split(shard.catalog)
    return os.path.join(directory, f"{name.partition('.')[0]}.statistics.json")


def _digest(value: object) -> str:
    return hex_digest(json.dumps(value, sort_keys=True).encode())
