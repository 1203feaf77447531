"""Descriptions of recordings: rate, length and packets. Each is found when it is first needed, and kept.

`info_of` reads a recording, unless it was read before. `known_info` looks only at what this process has read, so it
never waits. The last `KEPT_BYTES` of what was found are in memory; an hour of Opus takes 6 MB, an hour of MP3 3 MB.
What takes reading a whole recording is also in the scratch store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent, drive
from touchfs.form.kept import find_version, kept_or_made, key_of
from touchfs.form.results import Results
from touchfs.limits import Limits

if TYPE_CHECKING:
    from touchfs.media.decoder.pool import DecodePool
    from touchfs.media.slices.media_info import MediaInfo

KEPT_BYTES = 1 << 26
# Bytes of a description for each of several links: objects
_LINK_BYTES = 2000
# Containers whose headers say it, nearly always
_QUICK = ("flac", "wav", "w64")


def info_of(extent: Extent, limits: Limits, pool: DecodePool | None = None) -> MediaInfo:
    """Describe the recording in an extent. This may read all of it; threads that ask at once wait for one reading.
    A `pool` reads it instead of the one that all share.

    Raises FormatError if it is no recording that can be decoded, or if finding that out takes too long,
    MissingExtraError without PyAV, and the errors of the source.
    """
    info = known_info(extent)
    if info is not None:
        return info
    find_version(extent)
    return _infos.get(key_of(extent), lambda: _probe(extent, limits, pool))


def known_info(extent: Extent) -> MediaInfo | None:
    """The description of the recording in an extent if this process has it, else None. Never waits."""
    return _infos.known(key_of(extent))


def _probe(extent: Extent, limits: Limits, pool: DecodePool | None) -> MediaInfo:
    from touchfs.media.decoder.shared import shared_pool
    from touchfs.media.slices.containers import detect
    from touchfs.media.slices.media_info import MediaInfo
    from touchfs.media.slices.probe import probe
    from touchfs.media.slices.reading import Exactly

    pool = shared_pool(limits.decode_seconds) if pool is None else pool
    container, _ = drive(detect(extent.size), Exactly(extent))
    if container in _QUICK:
        return probe(extent, pool)
    data = bytes(kept_or_made(extent, "info", lambda: probe(extent, pool).to_bytes()))
    try:
        return MediaInfo.from_bytes(data, extent.size)
    except FormatError:  # another version of touchfs wrote it
        return probe(extent, pool)


def _size_of(info: MediaInfo) -> int:
    return info.nbytes + _LINK_BYTES * len(info.links)


_infos = Results(KEPT_BYTES, _size_of)
