"""Find out whether data still exist, for `touchfs storage`. The helper process of `silent` imports little but this."""

from __future__ import annotations

import os
from typing import NamedTuple

from touchfs.core.errors import NotFoundError, TouchfsError
from touchfs.core.location import Location
from touchfs.posix.mounts import may_be_away


class FoundData(NamedTuple):
    """The absolute path of data without links, and whether they no longer exist."""

    resolved: str
    is_gone: bool


def find_data(path: str) -> FoundData:
    return FoundData(Location.of(path).resolved, _is_gone(path))


def _is_gone(path: str) -> bool:
    """True if nothing is at this path, also not what is named by it, as a pair of Megatron's or a name with braces, and
    no part of that is on a disk that may merely be away. What may not be accessed counts as existing.
    """
    location = Location.of(path)
    if location.inside is not None:
        location = Location.of(path := location.inside.archive)
    if location.is_url:
        return False  # to ask its store might take minutes
    try:
        if os.path.lexists(path):
            return False
        # Which imports all kinds of data, and most paths are there.
        from touchfs.registry.directory.members import find_members
        from touchfs.registry.find import find_shards

        find_shards(path)
    except NotFoundError:
        one_of_each_directory = {os.path.dirname(each): each for each in find_members(location) or [path]}
        return not any(map(may_be_away, one_of_each_directory.values()))
    except (TouchfsError, OSError):
        pass
    return False
