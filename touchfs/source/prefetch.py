"""Have the bytes of files on this machine before they are read."""

from __future__ import annotations

from collections.abc import Iterator

from touchfs.errors import SourceError
from touchfs.posix.paths import is_url
from touchfs.source.store import StoredFile


def prefetch(file: StoredFile, rate: float | None = None) -> Iterator[int]:
    """Fetch a file of another store, at most `rate` bytes a second. Yields how many bytes are done each time.

    A file of this machine is done at once. Raises SourceError; UnwritableError if the bytes cannot be kept.
    """
    if not is_url(file.path):
        yield file.size
        return
    from touchfs.source.remote.file import UrlFile

    if not isinstance(file, UrlFile):
        raise SourceError("cannot be fetched ahead: it is in pieces", path=file.path)
    yield from file.fetch(rate)
