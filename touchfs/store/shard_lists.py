"""The shards that states are over: lists by fingerprint, so that a state can go on over a dataset that has grown.

A state has the fingerprint alone, because it must be small: a list takes 40 bytes a shard, 400 kB for 10,000, and an
iterator writes its state every 64 steps. So each list is a file, `shards/FINGERPRINT.json` beside the states of
iterators, written once when the first state is made. It may be copied to other machines.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from touchfs.core.errors import FormatError, NotFoundError, SourceError, UsageError, map_os_errors
from touchfs.core.token import from_json
from touchfs.posix.trust import atomic_own_file, make_directory, make_private, open_trusted
from touchfs.store.place import state_directory

log = logging.getLogger(__name__)

LIST_SUFFIX = ".json"
_KEPT = 1000
_SAMPLES_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class ShardList:
    """Samples by shard, in order. `what` says which samples of the shards they are.

    A shard is an id and a number of samples. Shards with equal ids have equal samples, wherever they are. The id ends
    in `ALIKE` if another shard at another path has the same name and sizes.
    """

    what: str
    shards: tuple[tuple[str, int], ...]


ALIKE = "?"


def joined(lists: Sequence[ShardList], what: str) -> ShardList:
    """Return the shards of several lists, one behind the other, each as one of its list."""
    shards = ((f"{number}:{name}", count) for number, each in enumerate(lists) for name, count in each.shards)
    return ShardList(what, tuple(shards))


def lists_directory() -> str:
    return os.path.join(state_directory(), "shards")


def remember(fingerprint: str, make: Callable[[], ShardList | None]) -> None:
    """Write the list of a fingerprint if there is none. Without a place for it, the log says so."""
    path = _path(fingerprint)
    with suppress(OSError):
        os.utime(path)  # those that were used last are kept
        return
    shards = make()
    if shards is None:
        return
    try:
        make_directory(lists_directory())
        make_private(lists_directory())
        with atomic_own_file(path) as file:
            file.write(json.dumps({"what": shards.what, "shards": shards.shards}).encode())
        _keep_latest()
    except (SourceError, OSError) as error:
        log.info("%s: states of this dataset cannot go on over a larger one", error)


def known_list(fingerprint: str) -> ShardList:
    """Return the list of a fingerprint. Raises UsageError if it is not here, FormatError if it is damaged."""
    path = _path(fingerprint)
    try:
        with map_os_errors(path), open(open_trusted(path), "rb") as file:
            content = from_json(file.read())
        shards = tuple((str(name), int(count)) for name, count in content["shards"])
        if any(count < 1 for _, count in shards) or sum(count for _, count in shards) > _SAMPLES_MAX:
            raise ValueError("no numbers of samples")
        return ShardList(str(content["what"]), shards)
    except NotFoundError:
        pass
    except (FormatError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise FormatError("the list of shards is damaged: copy it again, or remove it", path=path) from error
    raise UsageError(
        "the shards that the state is over are not known here: copy this file from the machine that made the state",
        path=path,
    )


def _path(fingerprint: str) -> str:
    return os.path.join(lists_directory(), f"{os.path.basename(fingerprint)}{LIST_SUFFIX}")


def _keep_latest() -> None:
    with suppress(OSError):  # another process does the same
        files = [entry for entry in os.scandir(lists_directory()) if entry.name.endswith(LIST_SUFFIX)]
        for entry in sorted(files, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)[:-_KEPT]:
            os.unlink(entry.path)
