"""Have the bytes of files on this machine before they are read."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic, sleep

from touchfs.errors import SourceError
from touchfs.extent import Content, Extent
from touchfs.posix.paths import is_url
from touchfs.posix.paths.chains import parse_in_archive
from touchfs.source.store import StoredFile

# A content is read in such pieces.
_PIECE = 1 << 20


class Pace:
    """Lets requests begin so that no more than `rate` bytes a second are asked for, whatever files they are of.

    Each waits until the bytes of the one before it are due. Time in which nothing was asked for is not made up for.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = 0.0

    def wait(self, size: int) -> None:
        """Wait until a request of `size` bytes may begin."""
        now = monotonic()
        sleep(max(self._due - now, 0))
        self._due = max(self._due, now) + size / self._rate


def ask(content: Content, size: int) -> None:
    """Have the first `size` bytes of a content here soon. A store is asked for those of a file, and not waited for; all
    others are read.
    """
    if isinstance(content, Extent) and is_url(getattr(content.source, "path", "")):
        from touchfs.source.remote.file import UrlFile

        if isinstance(content.source, UrlFile):
            content.source.ask(content.offset, min(size, content.size))
            return
    for offset in range(0, size, _PIECE):
        content.read(offset, _PIECE)


def prefetch(file: StoredFile, pace: Pace | None = None) -> Iterator[int]:
    """Fetch a file of another store, at a pace if one is given. Yields how many bytes are done each time.

    A file of this machine is done at once. Raises SourceError; UnwritableError if the bytes cannot be kept.
    """
    if not is_url(file.path):
        yield file.size
        return
    from touchfs.source.remote.file import UrlFile

    if not isinstance(file, UrlFile):
        where = "in an archive" if parse_in_archive(file.path) is not None else "in pieces"
        raise SourceError(f"cannot be fetched ahead: it is {where}", path=file.path)
    yield from file.fetch(pace)
