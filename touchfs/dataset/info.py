"""What `touchfs info` tells about a dataset."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from touchfs.core.errors import TouchfsError
from touchfs.dataset import Dataset
from touchfs.dataset.recordings.recording_formats import recording_formats
from touchfs.tables.values.partition import partition_types


def info_of(dataset: Dataset) -> dict[str, Any]:
    """What `touchfs info --json` prints."""
    columns = stored_columns(dataset)
    return {**dataset.facts(), **recording_formats(dataset).facts(), **({"columns": columns} if columns else {})}


def stored_columns(dataset: Dataset) -> dict[str, str]:
    """The types of the columns of the first table that can be read, and of the values of directories; empty if there is
    no table.
    """
    of_directories = partition_types(shard.partition for shard in dataset.shards)
    for shard in dataset.shards:
        with suppress(TouchfsError):
            if types := shard.known.column_types:
                return types | {name: kind for name, kind in of_directories.items() if name not in types}
    return {}
