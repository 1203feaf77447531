"""Fetches the shards of other stores to this machine, while they are served (`mount --prefetch`).

A program beside the mount does this. Its bytes stay in the scratch store, where the workers find them. After a reload
it begins again; it asks for nothing that is here.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from touchfs.core.errors import SourceError, TouchfsError
from touchfs.dataset import Dataset, counted
from touchfs.source.pace import Pace
from touchfs_mount.beside.program import Program, finish, take_work
from touchfs_mount.logs.logs import LogOptions

if TYPE_CHECKING:
    from touchfs.source.remote.file import UrlFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetchWork:
    """The task of the program: files, and how many bytes of them it may fetch a second."""

    files: list[UrlFile]
    rate: float | None


class Prefetcher:
    """Starts the program, in the zygote. At most one runs at a time: the one of the latest generation."""

    def __init__(self, rate: float | None = None) -> None:
        self._rate = rate
        self._program: Program | None = None

    def follow(self, dataset: Dataset, log_options: LogOptions) -> None:
        """Fetch the files of a new generation of the dataset."""
        from touchfs.source.remote.prefetch import remote_files  # most mounts fetch nothing

        if self._program is not None:
            self._program.kill()
            self._program = None
        try:
            if remote := remote_files(dataset.sources()):
                self._program = Program(__name__, FetchWork(remote, self._rate), log_options)
        except (OSError, TouchfsError) as error:
            log.error("nothing is fetched ahead: %s", error)


def main() -> None:
    """The entry point of the program. A file that cannot be fetched stops no other one; a full disk does."""
    from touchfs.source.remote.prefetch import check_kept, fetch_all, missing_bytes

    work: FetchWork = take_work()
    log.info("fetching %s", counted(len(work.files), "file"))
    pace = None if work.rate is None else Pace(work.rate)
    failed: set[UrlFile] = set()
    try:
        for file, result in fetch_all(work.files, pace):
            if isinstance(result, TouchfsError):
                failed.add(file)
                log.error("not fetched: %s", result)
        check_kept([file for file in work.files if file not in failed])
    except SourceError as error:
        log.error("no more is fetched: %s", error)
    kept = len(work.files) - len(missing_bytes(work.files))
    log.info("%d of %s are on this machine", kept, counted(len(work.files), "file"))
    finish()
