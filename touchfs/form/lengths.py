"""Descriptions of recordings: rate, length and packets. Each is found when it is first needed, and kept.

`info_of` reads a recording, unless it was read before. `known_info` looks only at what this process has read, so it
never waits. The last `KEPT_BYTES` of what was found are in memory; an hour of Opus takes 6 MB, an hour of MP3 3 MB.
What takes reading a whole recording is also in the scratch store.

The error of a recording that is damaged or takes too long is kept, too, for `RETRY_SECONDS`. Else a directory of its
segments would take that long for each file. Then it is tried again, as the machine may have been busy.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from touchfs.errors import FormatError
from touchfs.extent import Extent, drive
from touchfs.form.kept import identity_of, kept_or_made
from touchfs.limits import Limits

if TYPE_CHECKING:
    from touchfs.media.slices.media_info import MediaInfo

KEPT_BYTES = 1 << 26
RETRY_SECONDS = 60.0
# Containers whose headers say it, nearly always
_QUICK = ("flac", "wav", "w64")
# Of an entry besides its packets: objects, their keys, and the text of an error.
_ENTRY_BYTES = 2000


def info_of(extent: Extent, limits: Limits) -> MediaInfo:
    """Describe the recording in an extent. This may read all of it; threads that ask at once wait for one reading.

    Raises FormatError if it is no recording that can be decoded, or if finding that out takes too long,
    MissingExtraError without PyAV, and the errors of the source.
    """
    info = known_info(extent)
    if info is not None:
        return info
    extent.read(0, 1)  # opens and verifies the file: its version is known from now on
    return _infos.get(_key(extent), lambda: _probe(extent, limits))


def known_info(extent: Extent) -> MediaInfo | None:
    """The description of the recording in an extent if this process has it, else None. Never waits."""
    found = _infos.find(_key(extent))
    return None if found is None or isinstance(found.result, Exception) else found.result


def _key(extent: Extent) -> Hashable:
    return identity_of(extent) or (extent.source, extent.offset, extent.size)


def _probe(extent: Extent, limits: Limits) -> MediaInfo:
    from touchfs.media.decoder.shared import shared_pool
    from touchfs.media.slices.containers import detect
    from touchfs.media.slices.media_info import MediaInfo
    from touchfs.media.slices.probe import probe
    from touchfs.media.slices.reading import Exactly

    pool = shared_pool(limits.decode_seconds)
    container, _ = drive(detect(extent.size), Exactly(extent))
    if container in _QUICK:
        return probe(extent, pool)
    data = kept_or_made(extent, "info", lambda: probe(extent, pool).to_bytes())
    try:
        return MediaInfo.from_bytes(data, extent.size)
    except FormatError:  # another version of touchfs wrote it
        return probe(extent, pool)


class _Found(NamedTuple):
    """The description of a recording, or the error of finding it, and how long it is kept, by time.monotonic."""

    result: MediaInfo | FormatError
    until: float = inf

    @property
    def size(self) -> int:
        packets = None if isinstance(self.result, Exception) else self.result.packets
        return _ENTRY_BYTES if packets is None else _ENTRY_BYTES + packets.nbytes


class _Infos:
    """The last `KEPT_BYTES` of what was found, and what is being read now."""

    def __init__(self) -> None:
        self._found: OrderedDict[Hashable, _Found] = OrderedDict()
        self._size = 0
        self._after_fork()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it at the fork
        self._running: dict[Hashable, Future[_Found]] = {}

    def find(self, key: Hashable) -> _Found | None:
        with self._lock:
            return self._find(key)

    def _find(self, key: Hashable) -> _Found | None:
        found = self._found.get(key)
        if found is None or found.until < monotonic():
            return None
        self._found.move_to_end(key)
        return found

    def get(self, key: Hashable, probe: Callable[[], MediaInfo]) -> MediaInfo:
        with self._lock:
            found = self._find(key)
            running = self._running.get(key)
            if found is None and running is None:
                ours = self._running[key] = Future[_Found]()
        if found is None:
            found = running.result() if running is not None else self._run(key, probe, ours)
        if isinstance(found.result, Exception):  # another object each time, as whoever catches it may add a path
            raise FormatError(found.result.message, offset=found.result.offset)
        return found.result

    def _run(self, key: Hashable, probe: Callable[[], MediaInfo], future: Future[_Found]) -> _Found:
        try:
            found = _outcome(probe)
        except BaseException as error:
            future.set_exception(error)
            raise
        else:
            self._add(key, found)
            future.set_result(found)
            return found
        finally:
            with self._lock:
                self._running.pop(key, None)

    def _add(self, key: Hashable, found: _Found) -> None:
        with self._lock:
            old = self._found.pop(key, None)
            self._found[key] = found
            self._size += found.size - (old.size if old is not None else 0)
            while self._size > KEPT_BYTES and len(self._found) > 1:
                _, oldest = self._found.popitem(last=False)
                self._size -= oldest.size


def _outcome(probe: Callable[[], MediaInfo]) -> _Found:
    """The result of a probe. Errors that the next probe may not have are raised."""
    try:
        return _Found(probe())
    except FormatError as error:
        return _Found(FormatError(error.message, offset=error.offset), monotonic() + RETRY_SECONDS)


_infos = _Infos()
