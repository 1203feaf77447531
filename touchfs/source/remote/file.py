"""A file of another store as a source. It stays the version that was indexed or first opened."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from touchfs.core.errors import SourceError
from touchfs.core.extent import Buffer
from touchfs.core.urls import shown
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.blocks import RemoteBlocks
from touchfs.source.remote.calls import deadline_from_now
from touchfs.source.remote.client_errors import changed_error
from touchfs.source.remote.ranges import look
from touchfs.source.remote.storage_options import StorageOptions
from touchfs.source.remote.versions import tells_version
from touchfs.source.store import PlainRange, StoredFile

# Looks on their way, by URL.
_LOOKS: BoundedCache[str, Fingerprint] = BoundedCache(1024)


class UrlFile:
    """The file at a URL. It must match `fingerprint`; by default, its fingerprint at the first open."""

    __slots__ = ("_blocks", "_fingerprint", "_url", "_verify_at")

    def __init__(self, url: str, fingerprint: Fingerprint | None = None) -> None:
        self._url = url
        self._fingerprint = fingerprint
        self._blocks: RemoteBlocks | None = None
        self._verify_at = 0.0

    @property
    def path(self) -> str:
        """See `StoredFile.path`. Without secrets."""
        return shown(self._url)

    @property
    def size(self) -> int:
        if self._fingerprint is None:
            self._verified(deadline_from_now())
            return self.size
        return self._fingerprint.size

    @property
    def fingerprint(self) -> Fingerprint | None:
        return self._fingerprint

    @property
    def identity(self) -> str | None:
        fingerprint = self._fingerprint
        if fingerprint is None:
            return None
        if not tells_version(fingerprint):
            return None
        return f"{self._url}\0{fingerprint.hashed}"

    def plain_range(self, offset: int, length: int) -> PlainRange | None:
        return PlainRange(self.path, offset, length)

    @property
    def is_verified(self) -> bool:
        return self._blocks is not None and monotonic() < self._verify_at

    def open(self) -> None:
        self._verify_at = 0.0
        self._verified(deadline_from_now())

    def close(self) -> None:
        self._blocks = None

    def read(self, offset: int, length: int) -> bytes:
        if not length:
            return b""
        deadline = None if monotonic() < self._verify_at else deadline_from_now()
        blocks, fingerprint = self._verified(deadline)
        if offset + length > fingerprint.size:
            message = "the file ends here, before the data that its index names"
            raise SourceError(message, path=self.path, offset=fingerprint.size)
        data = blocks.read_open(offset, offset + length)
        if data is None:
            data = blocks.read(offset, offset + length, deadline or deadline_from_now())
        return data if isinstance(data, bytes) else bytes(data)

    def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self.read(offset, len(buffer))

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        """See `Source.read_nowait`. Returns None also if the file has to be verified first."""
        blocks, fingerprint = self._blocks, self._fingerprint
        if blocks is None or fingerprint is None or monotonic() >= self._verify_at:
            return None
        return blocks.read_nowait(offset, offset + length) if offset + length <= fingerprint.size else None

    def prefetch(self, offset: int, length: int) -> float:
        """Have bytes fetched, as far as the file has them, without waiting for them. Returns as `RemoteBlocks`."""
        deadline = deadline_from_now()
        blocks, fingerprint = self._verified(deadline)
        stop = min(offset + length, fingerprint.size)
        return blocks.prefetch(offset, stop, deadline) if stop > offset else 0.0

    def blocks(self) -> RemoteBlocks:
        """The pieces of the version that it must have, which need not be the one that is there now."""
        if self._blocks is not None:
            return self._blocks
        fingerprint = self._fingerprint
        if fingerprint is None:
            return self._verified(deadline_from_now())[0]
        self._blocks = RemoteBlocks(self._url, fingerprint)
        return self._blocks

    def _verified(self, deadline: float | None) -> tuple[RemoteBlocks, Fingerprint]:
        blocks, fingerprint = self._blocks, self._fingerprint
        if blocks is not None and fingerprint is not None and monotonic() < self._verify_at:
            return blocks, fingerprint
        found = self._look(deadline)
        if fingerprint is not None and not fingerprint.matches(found):
            self.close()
            raise changed_error(self._url)
        self._fingerprint = found
        self._verify_at = monotonic() + StorageOptions.configured().revalidate_seconds
        if blocks is None:
            blocks = self._blocks = RemoteBlocks(self._url, found)
        return blocks, found

    def _look(self, deadline: float | None) -> Fingerprint:
        """The fingerprint of the file now. Threads that want it at the same time send one request."""

        def found_now() -> Fingerprint:
            # Another thread may have looked since this one wanted to.
            known = self._fingerprint if monotonic() < self._verify_at else None
            return look(self._url, deadline) if known is None else known

        try:
            return _LOOKS.get(self._url, found_now)
        finally:
            _LOOKS.pop(self._url)  # the next look is a new one

    def __repr__(self) -> str:
        return f"UrlFile({self.path!r})"

    def __reduce__(self) -> tuple[type[UrlFile], tuple[str, Fingerprint | None]]:
        return UrlFile, (self._url, self._fingerprint)


if TYPE_CHECKING:
    _: type[StoredFile] = UrlFile
