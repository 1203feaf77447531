"""Fetching whole files before anybody reads them: each block that is not kept yet is fetched, and kept on the disk.

The requests of all files share one window, so many small files are fetched as quickly as a large one. No file is looked
at first: a request is for the version that was indexed. What is kept is not fetched again, so after an
interruption it goes on where it was.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from time import monotonic, sleep
from typing import NamedTuple

from touchfs.core.errors import SourceError, TouchfsError, UnwritableError
from touchfs.core.location import Location
from touchfs.source.pace import Pace
from touchfs.source.remote.blocks import BLOCK, RemoteBlocks
from touchfs.source.remote.calls import deadline_from_now, result_in_time
from touchfs.source.remote.clients import resolve
from touchfs.source.remote.file import UrlFile
from touchfs.source.remote.flights import FLIGHTS, REQUEST_MAX
from touchfs.source.remote.kept import KEPT, FilePiece
from touchfs.source.remote.storage_options import StorageOptions
from touchfs.source.scratch.store import Scratch
from touchfs.source.scratch.value import VALUE_START
from touchfs.source.scratch.write_behind import WRITE_BEHIND
from touchfs.source.store import StoredFile

# Seconds between looks at pending writes, and how long to wait for a disk that writes nothing.
_DISK_SECONDS, _STILL_SECONDS = 0.01, 5.0
_PER_REQUEST = REQUEST_MAX // BLOCK


class _FetchRequest(NamedTuple):
    """A part of a file, and the pieces of it that are on their way."""

    file: UrlFile
    size: int
    futures: Sequence[Future[memoryview]]
    deadline: float

    def result(self) -> int | TouchfsError:
        """The size, as soon as all pieces are here; or why they are not."""
        try:
            for future in self.futures:
                result_in_time(future, self.file.blocks().version.url, self.deadline)
        except TouchfsError as error:
            return error
        return self.size


def remote_files(files: Iterable[StoredFile]) -> list[UrlFile]:
    """Return the files that are at URLs, each once. Raises SourceError for a file in an archive at a URL."""
    found = dict[str, UrlFile]()
    for file in files:
        if isinstance(file, UrlFile):
            found[file.path] = file
        elif Location.of(file.path).is_url:
            raise SourceError("cannot be fetched ahead: it is in an archive", path=file.path)
    return list(found.values())


def check_room(files: Sequence[UrlFile]) -> None:
    """Raise UnwritableError if the scratch store cannot hold all files at once; SourceError if it cannot be used."""
    if sum(map(_kept_size, files)) > _room():
        raise _no_room(files)


def fetch_all(files: Sequence[UrlFile], pace: Pace | None = None) -> Iterator[tuple[UrlFile, int | TouchfsError]]:
    """Fetch files, at a pace if one is given. Yields how many bytes of which file are done each time, in order, or why
    a file cannot be fetched: then no more of it is asked for.

    Raises UnwritableError before the first file for which the scratch store has no room, and as soon as it refuses to
    keep anything.
    """
    begun, room, failed, waiting = monotonic(), _room(), set[UrlFile](), deque[_FetchRequest]()

    def ended(most: int) -> Iterator[tuple[UrlFile, int | TouchfsError]]:
        """Yield the results of requests, until at most `most` requests are on their way."""
        while waiting and (len(waiting) > most or all(future.done() for future in waiting[0].futures)):
            request = waiting.popleft()
            if request.file not in failed:
                result = request.result()
                if isinstance(result, TouchfsError):
                    failed.add(request.file)
                yield request.file, result

    _wait_for_disk()  # what was read a moment ago is not fetched again
    for file in files:
        if (room := room - _kept_size(file)) < 0:
            yield from ended(0)
            raise _no_room(files)
        if (problem := _problem(file)) is not None:
            yield file, problem
            continue
        for request in _requests(file, pace):
            if (refusal := KEPT.refusal_since(begun)) is not None:
                raise UnwritableError(f"cannot keep what is fetched: {refusal.message}", path=refusal.path) from refusal
            waiting.append(request)
            yield from ended(StorageOptions.configured().requests - 1)
            if file in failed:
                break
    yield from ended(0)


def check_kept(files: Sequence[UrlFile]) -> None:
    """Raise UnwritableError unless all files are on this machine."""
    if missing := sum(missing_bytes(files).values()):
        message = f"{missing:,} of {_size(files):,} bytes are not on this machine any more, as there is no room for all"
        raise UnwritableError(f"{message}: {_advice(files)}", path=Scratch.configured().directory)


def missing_bytes(files: Sequence[UrlFile]) -> dict[UrlFile, int]:
    """The number of bytes of each file that this machine lacks, for files that lack some.

    Waits until all blocks that were fetched are on the disk.
    """
    _wait_for_disk()
    lengths = {file: _length(_missing(file.blocks(), range(_count(file))), file.size) for file in files}
    return {file: length for file, length in lengths.items() if length}


def _problem(file: UrlFile) -> TouchfsError | None:
    """Why a file cannot be fetched, as far as that is known without asking its store."""
    version = file.blocks().version
    if not version.is_kept:
        message = "its server gives neither an etag nor a time, so none of it is kept: --assume-immutable keeps it"
        return SourceError(message, path=file.path)
    try:
        resolve(version.url)  # in this thread: to import a client takes a while
    except TouchfsError as error:
        return error
    return None


def _requests(file: UrlFile, pace: Pace | None) -> Iterator[_FetchRequest]:
    """Fetch a file in requests of some blocks each. Yields each when it has begun."""
    blocks, last = file.blocks(), _count(file)
    for first in range(0, last, _PER_REQUEST):
        stop = min(first + _PER_REQUEST, last)
        missing = _missing(blocks, range(first, stop))
        while WRITE_BEHIND.is_behind:
            sleep(_DISK_SECONDS)
        if pace is not None and missing:
            pace.wait(_length(missing, file.size))
        deadline = deadline_from_now()
        futures = FLIGHTS.fetch(blocks.version, missing, deadline) if missing else []
        yield _FetchRequest(file, min(stop * BLOCK, file.size) - first * BLOCK, futures, deadline)


def _missing(blocks: RemoteBlocks, numbers: Iterable[int]) -> list[FilePiece]:
    return [blocks.block(number) for number in numbers if not any(map(_are_kept, blocks.forms(number)))]


def _are_kept(pieces: Sequence[FilePiece]) -> bool:
    """True if all pieces are kept on the disk. Then they stay there longer than what nobody fetches."""
    if is_kept := all(map(KEPT.is_on_disk, pieces)):
        for piece in pieces:
            KEPT.touch(piece)
    return is_kept


def _wait_for_disk() -> None:
    """Wait until all that has landed is kept, as long as the disk gets on."""
    least, until = math.inf, 0.0
    while waiting := FLIGHTS.waiting + WRITE_BEHIND.waiting:
        now = monotonic()
        if waiting < least:
            least, until = waiting, now + _STILL_SECONDS
        elif now > until:
            return
        sleep(_DISK_SECONDS)


def _room() -> float:
    """The most bytes that the scratch store may hold; infinite with a lower store, which may have some of the files."""
    scratch = Scratch.configured()
    return scratch.limit_now() if scratch.lower is None else math.inf


def _no_room(files: Sequence[UrlFile]) -> UnwritableError:
    message = f"{_size(files):,} bytes do not fit in the scratch store, which holds at most {_room():,}"
    return UnwritableError(f"{message}: {_advice(files)}", path=Scratch.configured().directory)


def _advice(files: Sequence[UrlFile]) -> str:
    # When the store is full, it evicts until a tenth is free. That must be what others have.
    return f"give --scratch-size at least {sum(map(_kept_size, files)) * 10 // 9 + 1}"


def _kept_size(file: UrlFile) -> int:
    """The number of bytes that a file takes in the scratch store."""
    return file.size + _count(file) * VALUE_START


def _size(files: Iterable[UrlFile]) -> int:
    return sum(file.size for file in files)


def _count(file: UrlFile) -> int:
    return -(-file.size // BLOCK)


def _length(pieces: Iterable[FilePiece], file_size: int) -> int:
    """Bytes of pieces of a file. Its last piece may be a short one."""
    return sum(min(piece.size, file_size - piece.start) for piece in pieces)
