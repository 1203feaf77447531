"""`.touchfs/info` of a mount, as others read it. Who mounts decides what is in it, and may call any mount touchfs.

So its keys and types are checked, and a process is believed to be the mount's daemon only if the kernel agrees: root
sends it signals.
"""

from __future__ import annotations

import json
from typing import Any

from touchfs.core.errors import FormatError
from touchfs_mount.mountpoints.descriptors import serves

_NONE = type(None)
# The types of the values that commands use. Others are only printed as JSON.
_TYPES: dict[str, tuple[type, ...]] = {
    "kind": (str,),
    "shards": (int,),
    "samples": (int, _NONE),
    "indexed_shards": (int, _NONE),
    "since": (str,),
    "pid": (int,),
    "reloads_begun": (int,),
    "reloads_ended": (int,),
    "reload_error": (str, _NONE),
    "index": (str,),
    "state": (str, _NONE),
    "log": (str, _NONE),
    "metrics": (str, _NONE),
}


def parse_info(text: bytes) -> dict[str, Any]:
    """Parse the text of `.touchfs/info`. Raises FormatError if it is not one that touchfs writes."""
    try:
        info = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("its info is no JSON of touchfs") from error
    if not isinstance(info, dict):
        raise FormatError("its info is no JSON object")
    for key, types in _TYPES.items():
        if type(info.get(key)) not in types:
            raise FormatError(f"its info has no {key} that touchfs would write")
    return info


def zygotes(supervisor: int, device: str) -> list[int]:
    """The children of a process that serve the mount of a device number. None if it is not the mount's supervisor: a
    pid may be from another container, or a lie; nor if it is another user's, unless we are root.
    """
    return [child for child in children(supervisor) if serves(child, device)]


def children(pid: int) -> list[int]:
    """The children of a process; none if it has ended."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return list(map(int, file.read().split()))
    except OSError:
        return []
