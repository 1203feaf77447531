"""Make the lists of a dataset in a process of its own, at low priority.

In a worker of a mount this would take processor time from all requests: about 90 µs an utterance. The process is a new
program, not a fork, and ends with the one that starts it.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from touchfs.dataset import Dataset
from touchfs.errors import SourceError, TouchfsError
from touchfs.lists.stored import StoredLists, find_lists, open_lists
from touchfs.posix import interpreter

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
        _make(dataset)
    return open_lists(dataset)


def _make(dataset: Dataset) -> None:
    command = interpreter.program(__name__)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        answer, _ = process.communicate(pickle.dumps(dataset))
    if not answer:
        raise SourceError("the process that makes its lists was ended: try again", path=dataset.source)
    error: TouchfsError | None = pickle.loads(answer)
    if error is not None:
        raise error


def main() -> None:
    """The entry point of the process. It answers with an error, or None."""
    os.nice(_NICENESS)
    problem = None
    try:
        open_lists(pickle.load(sys.stdin.buffer))
    except TouchfsError as error:
        problem = error
    sys.stdout.buffer.write(pickle.dumps(problem))
