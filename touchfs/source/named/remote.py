"""Files of other stores that data names, read by the clients of `touchfs.source.remote`: so its options, attempts,
time-outs and rules for redirects hold. Their versions are not looked at, as each is read once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from touchfs.core.errors import SourceError, TouchfsError
from touchfs.limits import too_large
from touchfs.source.named.addresses import HTTP
from touchfs.source.named.http_client import LocationGuard, NoRangesError
from touchfs.source.named.locations import RemotePlace
from touchfs.source.remote.calls import begin, deadline_from_now, in_thread, result_in_time
from touchfs.source.remote.client_errors import converted_errors
from touchfs.source.remote.clients import resolve
from touchfs.source.remote.protocols import Place
from touchfs.source.remote.ranges import ATTEMPT_SECONDS, tried
from touchfs.source.remote.slots import SLOTS

T = TypeVar("T")
_BLOCK = 1 << 20
# An attempt to read much may take longer, as if from a store with so many bytes in a second.
_SLOWEST = 1 << 20


class RemoteRange(NamedTuple):
    """A range of a file of another store."""

    place: RemotePlace
    offset: int
    size: int


def read_ranges(ranges: Sequence[RemoteRange], limit: int) -> list[bytes | TouchfsError]:
    """Return the bytes of ranges, fewer at the end of a file, or an error for each that cannot be read. All are asked
    for at once. If a server sends no ranges, the file is read once for all of it that lie side by side here.
    """
    begun = [_begun(each, limit) for each in ranges]
    found: list[bytes | TouchfsError] = []
    at: RemotePlace | None = None
    whole: bytes | TouchfsError = b""
    for each, future in zip(ranges, begun, strict=True):
        data = _attempted(partial(_waited, future, each.place))
        if isinstance(data, NoRangesError):
            if each.place is not at:
                at, whole = each.place, _attempted(partial(read_whole, each.place, limit))
            data = whole[each.offset : each.offset + each.size] if isinstance(whole, bytes) else whole
        found.append(data)
    return found


def read_whole(place: RemotePlace, limit: int) -> bytes:
    """Return all bytes of a file. Raises SourceError if it is over the limit, NotFoundError, or LocationError."""

    async def read(client: Any, path: str) -> bytes:
        if place.location.scheme in HTTP:
            return await _stream(client, path, limit)
        if ((await _info(client, path)).get("size") or 0) > limit:
            raise SourceError(too_large(limit), path=place.url)
        return await _cat(client, path, None, None)

    return _waited(_begin(place, limit, read, limit), place)


class RemoteSource:
    """A file of another store as a source, which reads a block at a time.

    Raises NoRangesError, on opening and on reading, if the server sends the file as a whole only, and as `read_whole`.
    """

    def __init__(self, place: RemotePlace, limit: int) -> None:
        self._place, self._limit = place, limit
        self._start, self._block = 0, b""
        size = _waited(_begin(place, limit, _info), place).get("size")
        if not isinstance(size, int):
            raise NoRangesError("the store does not tell its size", path=place.url)
        self.size = size

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise SourceError("the file ends here, before its data does", path=self._place.url, offset=self.size)
        begin_at = offset - self._start
        if begin_at < 0 or begin_at + length > len(self._block):
            size = min(max(length, min(_BLOCK, self._limit)), self.size - offset)
            begun = _begun(RemoteRange(self._place, offset, size), self._limit)
            self._start, self._block, begin_at = offset, _waited(begun, self._place), 0
        data = self._block[begin_at : begin_at + length]
        if len(data) != length:
            raise SourceError("the store sends less than it said", path=self._place.url, offset=offset)
        return data

    def read_nowait(self, offset: int, length: int) -> None:
        """See `Source.read_nowait`: it always waits."""


def client_of(place: RemotePlace, limit: int) -> Place:
    """Return the client that reads a place. Raises UsageError, SourceError or MissingExtraError."""
    guard = LocationGuard(place.location, limit) if place.location.scheme in HTTP else None
    return resolve(place.url, place.options, guard)


def _begun(range_: RemoteRange, limit: int) -> Future[bytes]:
    async def read(client: Any, path: str) -> bytes:
        return await _cat(client, path, range_.offset, range_.offset + range_.size)

    return _begin(range_.place, limit, read, range_.size)


def _begin(place: RemotePlace, limit: int, call: Callable[[Any, str], Awaitable[T]], size: int = 0) -> Future[T]:
    """Begin a call of the client of a place, which gets about `size` bytes."""
    client, path = client_of(place, limit)

    async def attempt() -> T:
        return await call(client, path)

    async def run() -> T:
        async with SLOTS.slot(place.url):
            with converted_errors(place.url):
                return await tried(place.url, attempt, deadline_from_now(), ATTEMPT_SECONDS + size / _SLOWEST)

    return begin(run())


def _waited(future: Future[T], place: RemotePlace) -> T:
    return result_in_time(future, place.url, deadline_from_now())


def _attempted(read: Callable[[], bytes]) -> bytes | TouchfsError:
    try:
        return read()
    except TouchfsError as error:
        return error


async def _info(client: Any, path: str) -> Any:
    return await (client._info(path) if client.async_impl else in_thread(client.info, path))


async def _cat(client: Any, path: str, start: int | None, stop: int | None) -> bytes:
    if client.async_impl:
        return bytes(await client._cat_file(path, start=start, end=stop))
    return bytes(await in_thread(client.cat_file, path, start, stop))


async def _stream(client: Any, path: str, limit: int) -> bytes:
    """The body of a reply, which may be larger than its header says: a client decompresses it."""
    session, blocks, size = await client.set_session(), [], 0
    async with session.get(client.encode_url(path), **client.kwargs) as reply:
        while block := await reply.content.read(_BLOCK):
            blocks.append(block)
            size += len(block)
            if size > limit:
                raise SourceError(too_large(limit), path=path)
    return b"".join(blocks)
