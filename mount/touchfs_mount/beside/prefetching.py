"""Fetches the shards of other stores to this machine, while they are served (`mount --prefetch`).

A program beside the mount does this. Its bytes stay in the scratch store, where the workers find them. After a reload
it begins again; it asks for nothing that is here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from touchfs.dataset import Dataset, counted
from touchfs.errors import TouchfsError, UnwritableError
from touchfs.posix.paths import is_url
from touchfs.source.pace import Pace
from touchfs.source.store import StoredFile
from touchfs_mount.beside.program import Program, finish, take_work
from touchfs_mount.daemon.logs import LogOptions

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetchWork:
    """The task of the program: files, and how many bytes of them it may fetch a second."""

    files: list[StoredFile]
    rate: float | None


class Prefetcher:
    """Starts the program, in the zygote. At most one runs at a time: the one of the latest generation."""

    def __init__(self, rate: float | None = None) -> None:
        self._rate = rate
        self._program: Program | None = None

    def follow(self, dataset: Dataset, log_options: LogOptions) -> None:
        """Fetch the files of a new generation of the dataset."""
        if self._program is not None:
            self._program.kill()
            self._program = None
        try:
            files = [shard.source(name) for shard in dataset.shards for name in shard.files]
            if remote := [file for file in files if is_url(file.path)]:
                self._program = Program(__name__, FetchWork(remote, self._rate), log_options)
        except (OSError, TouchfsError):
            log.exception("nothing is fetched ahead")


def main() -> None:
    """The entry point of the program. A file that cannot be fetched stops no other one; a full disk does."""
    work: FetchWork = take_work()
    log.info("fetching %s", counted(len(work.files), "file"))
    pace = None if work.rate is None else Pace(work.rate)
    fetched = 0
    for file in work.files:
        try:
            for _ in file.fetch(pace):
                pass
            fetched += 1
        except UnwritableError as error:
            log.error("no more is fetched: %s", error)
            break
        except TouchfsError as error:
            log.error("not fetched: %s", error)
    log.info("%d of %s are on this machine", fetched, counted(len(work.files), "file"))
    finish()
