"""`data.list`, which lists all shards of a TouchNet dataset: one line `SHARD_DIR DATATYPES` a shard.

As in TouchNet's make_data, the path of each shard is as the output was typed, so TouchNet must run in the same
directory. The format allows no spaces or control characters in paths: for such an output, shards are named relative to
`data.list`, and TouchNet must run in its directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from touchfs.core.control_characters import has_control
from touchfs.core.errors import UsageError
from touchfs.core.location import Location
from touchfs.core.urls import shown
from touchfs.posix.atomic import atomic_file

NAME = "data.list"


def is_relative_to_itself(output: str) -> bool:
    """True if the `data.list` of an output, as typed, names shards relative to itself."""
    return output.split() != [output] or has_control(output)


def remark(output: str) -> str:
    """A remark for the user on such a `data.list`."""
    return (
        f"{output}/{NAME} names the shards relative to itself: TouchNet reads it from there, after `cd {quote(output)}`"
    )


def check_output(output: str) -> None:
    """Raise UsageError for an output that is empty, or a URL."""
    if not output:
        raise UsageError("the output is empty: is a variable unset?")
    if Location.of(output).is_url:
        raise UsageError("shards are written to directories of this machine only: copy them there", path=output)


def check_apart(source: str, output: str) -> None:
    """Raise UsageError for an output in the directory that is read: the next run would read what this one wrote."""
    above, below = Location.of(source).resolved, Location.of(output).resolved
    if os.path.isdir(above) and os.path.commonpath((above, below)) == above:
        raise UsageError(f"is in {shown(source)}, which is read: choose another output", path=output)


def check_inside(dataset: str, shards: Iterable[str]) -> None:
    """Raise UsageError if the `data.list` of a directory names a shard elsewhere, before that is changed: in a copy of
    a dataset, the list may still name the original. Who means that names the list itself.
    """
    root = Location.of(dataset).resolved
    if not os.path.isdir(root):
        return
    for shard in shards:
        # A link to a shard may be in the directory.
        location = Location.of(shard)
        places = location.resolved, Location.of(os.path.dirname(location.absolute.path)).resolved
        if not any(Path(place).is_relative_to(root) for place in places):
            problem = f"its {NAME} names {shown(shard)}, which is elsewhere: fix it, or name the list to change that"
            raise UsageError(problem, path=dataset)


def write_data_list(directory: str | os.PathLike[str], output: str, shards: Sequence[str], datatypes: str) -> None:
    """Write the list. `directory` is the output, `output` the same as typed, `shards` names directories in it."""
    before = "" if is_relative_to_itself(output) else f"{output}/"
    with atomic_file(os.path.join(directory, NAME)) as file:
        for shard in shards:
            file.write(os.fsencode(f"{before}{shard} {datatypes}\n"))
