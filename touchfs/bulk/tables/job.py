"""Packing a dataset, a list or a folder into a cache: Arrow shards, Lance rows, or the frames of videos in Lance.

The cache appears as a whole when it is complete, so an interrupted run leaves nothing and begins again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from touchfs.bulk.chosen import Choice
from touchfs.bulk.data_list import check_apart, check_output
from touchfs.bulk.skipped import publish_skipped, skipped_line
from touchfs.bulk.tables.copy import copy_table, find_table
from touchfs.bulk.tables.dataset import DatasetItems
from touchfs.bulk.tables.folder import folder_files, folder_items
from touchfs.bulk.tables.item import Item, row_of
from touchfs.bulk.tables.writers import TableSettings
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError, UsageError, map_os_errors
from touchfs.core.location import Location
from touchfs.core.progress import Progress
from touchfs.features import Features
from touchfs.registry.find import find_shards
from touchfs.shard.options import DEFAULT, Options
from touchfs.source.data import find_type
from touchfs.source.store import FileType


@dataclass(frozen=True, slots=True)
class TableReport:
    """The numbers of rows that were written, and of samples that were skipped."""

    rows: int
    skipped: int


def pack_table(
    source: str,
    output: str,
    settings: TableSettings,
    *,
    features: Features | None = None,
    options: Options = DEFAULT,
    leave_out: Collection[str] = (),
    skip_bad: bool = False,
    choice: Choice | None = None,
    progress: Progress = lambda done, total: None,
) -> TableReport:
    """Write the samples of a dataset, the lines of a JSONL or the files of a folder as a cache at `output`.

    With a `choice`, only what it has of a dataset is written. Without `features`, each file of a dataset's samples is
    stored as it is, and a table is copied. `progress` is called with what is done and the total: bytes of a dataset,
    files of a folder. Raises UsageError if the output exists, FormatError for a sample that makes no row unless it is
    skipped, and for a column that no sample has, and the errors of the source.
    """
    check_output(output)
    check_apart(source, output)
    if os.path.lexists(output):
        raise UsageError("already exists: remove it, or choose another output", path=output)
    skipped: list[bytes] = []

    def skip(where: str, error: TouchfsError) -> None:
        skipped.append(skipped_line({"sample": where, "reason": str(error)}))

    if _is_plain_folder(source):
        if features is None:
            raise UsageError("a folder of files needs --features, which name the columns", path=source)
        files = folder_files(source)
        items = _counted(folder_items(source, files, features), len(files), progress)
    elif features is None and not leave_out and (table := find_table(source, settings, options, choice)) is not None:
        return TableReport(copy_table(table, output, settings, progress), 0)
    else:
        samples = DatasetItems(source, options, leave_out, skip if skip_bad else None, choice)
        features = features or samples.features(settings)
        items = samples.items(progress)
    rows = settings.write(_rows(items, features, skip if skip_bad else None), features, Path(output))
    if skipped:
        with map_os_errors(output):
            publish_skipped(Path(output), skipped)
    return TableReport(rows, len(skipped))


def _is_plain_folder(source: str) -> bool:
    if find_type(source) is not FileType.DIRECTORY:
        return False
    try:
        find_shards(source)
    except NotFoundError as error:
        if Location.of(source).is_url:
            problem = "has no shards, and a folder of files is packed from this machine only: copy it"
            raise UsageError(problem, path=source) from error
        return True
    return False


def _counted(items: Iterator[Item], total: int, progress: Progress) -> Iterator[Item]:
    for number, item in enumerate(items, 1):
        yield item
        progress(number, total)


def _rows(
    items: Iterator[Item], features: Features, skip: Callable[[str, TouchfsError], None] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of the items. Raises FormatError at the end for a column that no row has."""
    missing, some = set(features), False
    for item in items:
        try:
            row = row_of(item, features)
        except TouchfsError as error:
            if skip is None:
                raise FormatError(f"sample {item.key[:80]!r}: {error}; fix it, or skip it with --skip-bad") from error
            skip(item.key, error)
            continue
        missing -= {name for name in missing if row[name] is not None}
        some = True
        yield item.key, row
    if some and missing:
        raise FormatError(f"no sample has a value for the column {min(missing)!r}: see to the features")
