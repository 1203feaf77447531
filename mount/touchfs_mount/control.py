"""The control directory `.touchfs/`: files that are made when they are read.

Each open is a row of the state store, so that its text is the same for every read of it, in whatever worker. The
entries live a second at most, and reads bypass the page cache (direct I/O), as the size is not known before.

A control file's handle is a tag bit and the id of its open; a data file's handle is its inode, which never has the bit.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from touchfs.dataset import Dataset
from touchfs.errors import NotFoundError
from touchfs.state.store import StateStore
from touchfs.tree.inode import FIXED_VIEW, pack
from touchfs.tree.tree import Entry
from touchfs_mount.loop import CELLS, FAILURES, LATE_REPLIES, LOST_RACES, REQUESTS
from touchfs_mount.workers import Reloads

NAME = b".touchfs"
DIRECTORY = pack(FIXED_VIEW, 0, 2)
INFO = pack(FIXED_VIEW, 0, 3)
HANDLE_TAG = 1 << 63

ENTRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MountFacts:
    """What `.touchfs/info` says of the mount itself. `counters` are those of all workers."""

    path: str
    pid: int
    loop: str
    counters: list[memoryview[int]]
    reloads: Reloads


class Control:
    """Serves the control directory in one worker. `store` is this worker's own."""

    def __init__(self, dataset: Dataset, facts: MountFacts, mount: int, store: StateStore) -> None:
        self._dataset = dataset
        self._facts = facts
        self._mount = mount
        self._store = store
        self._files: dict[str, Callable[[], bytes]] = {"info": self._info}

    def open(self, inode: int) -> int:
        """The handle of a new open."""
        return HANDLE_TAG | self._store.open_file(self._mount, ENTRIES[inode])

    def read(self, handle: int, offset: int, length: int) -> bytes:
        return self._store.text(handle & ~HANDLE_TAG, lambda file: self._files[file]())[offset : offset + length]

    def release(self, handle: int) -> None:
        self._store.release(handle & ~HANDLE_TAG)

    def _info(self) -> bytes:
        dataset = self._dataset
        totals = [sum(counters[cell] for counters in self._facts.counters) for cell in range(CELLS)]
        told = {
            "touchfs": version("touchfs"),
            "source": os.path.abspath(dataset.source),
            **dataset.facts(),
            "mounted_at": self._facts.path,
            "pid": self._facts.pid,
            **self._facts.reloads.told(),
            "loop": self._facts.loop,
            "workers": len(self._facts.counters),
            "requests": totals[REQUESTS],
            "late_replies": totals[LATE_REPLIES],
            "lost_races": totals[LOST_RACES],
            "internal_errors": totals[FAILURES],
        }
        return json.dumps(told, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


ENTRIES: dict[int, str] = {INFO: "info"}


def is_control(inode: int) -> bool:
    return inode in (DIRECTORY, INFO)


def entry(inode: int, mtime_ns: int) -> Entry:
    return Entry(inode, stat.S_IFDIR if inode == DIRECTORY else stat.S_IFREG, 0, mtime_ns)


def find(directory: int, name: bytes, mtime_ns: int) -> Entry | None:
    """The entry of this name in the control directory."""
    if directory != DIRECTORY:
        raise NotFoundError("not a directory")
    return next((entry(inode, mtime_ns) for inode, file in ENTRIES.items() if file.encode() == name), None)
