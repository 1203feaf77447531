"""Make the lists of a dataset in a process of its own, at low priority.

In a worker of a mount this would take processor time from all requests: about 90 µs an utterance.
"""

from __future__ import annotations

import os
from contextlib import closing

from touchfs.core.errors import SourceError
from touchfs.core.extent import Content
from touchfs.dataset import Dataset
from touchfs.lists.extents import Checksums, open_extents
from touchfs.lists.stored import StoredLists, find_lists, open_lists
from touchfs.posix.helper_process import HelperEndedError, HelperProcess, answer_calls

# Starting the process takes as long as so many utterances.
_FEW = 2000
_NICENESS = 10


def open_lists_apart(dataset: Dataset, few: int = _FEW) -> StoredLists:
    """Open the lists of a dataset, as `open_lists`. If they are missing, they are made in a process of its own, except
    for up to `few` utterances.
    """
    if (lists := find_lists(dataset)) is not None:
        return lists
    if dataset.samples + sum(shard.segments for shard in dataset.shards) > few:
        _make(dataset, None)
    return open_lists(dataset)


def open_extents_apart(dataset: Dataset, checksums: Checksums, few: int = _FEW) -> Content:
    """Like `open_lists_apart`, of `extents.parquet`."""
    if dataset.samples > few:
        _make(dataset, checksums)
    return open_extents(dataset, checksums)


def _make(dataset: Dataset, checksums: Checksums | None) -> None:
    with closing(HelperProcess(__name__)) as helper:
        try:
            helper.call(dataset, checksums)
        except HelperEndedError as error:
            message = "the process that makes its lists was ended: try again"
            raise SourceError(message, path=dataset.source) from error


def main() -> None:
    """The entry point of the process."""
    os.nice(_NICENESS)
    answer_calls(lambda: _open)


def _open(dataset: Dataset, checksums: Checksums | None) -> None:
    if checksums is None:
        open_lists(dataset)
    else:
        open_extents(dataset, checksums)
