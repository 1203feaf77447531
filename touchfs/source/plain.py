"""The store of what is in no archive: local files, and those at URLs."""

from __future__ import annotations

from functools import cache

from touchfs.core.location import Location
from touchfs.source.local_store import LocalStore
from touchfs.source.store import Store

_LOCAL = LocalStore()


def plain_store(location: Location) -> Store:
    """The store of a location that is in no archive. The only place that decides which kind that is."""
    return _remote() if location.is_url else _LOCAL


@cache
def _remote() -> Store:
    from touchfs.source.remote.store import RemoteStore  # most commands need none

    return RemoteStore()
