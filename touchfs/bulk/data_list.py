"""`data.list`, which stands for all shards of a TouchNet dataset: a line `SHARD_DIR DATATYPES` a shard.

As in TouchNet's make_data, it has the path of each shard as it was typed, so TouchNet reads it in the directory where
that was. It can hold no path with spaces or control characters: then shards are named relative to `data.list` itself,
and TouchNet reads it in the directory where `data.list` is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from shlex import quote

from touchfs.control_characters import has_control
from touchfs.errors import UsageError
from touchfs.posix.atomic import atomic_file

NAME = "data.list"


def is_relative_to_itself(output: str) -> bool:
    """Whether the `data.list` of an output, as typed, names shards relative to itself."""
    return output.split() != [output] or has_control(output)


def remark(output: str) -> str:
    """What its readers must know of such a `data.list`."""
    return (
        f"{output}/{NAME} names the shards relative to itself: TouchNet reads it from there, after `cd {quote(output)}`"
    )


def check_output(output: str) -> None:
    if not output:
        raise UsageError("the output is empty: is a variable unset?")


def write_data_list(directory: str | os.PathLike[str], output: str, shards: Sequence[str], datatypes: str) -> None:
    """`directory` is the output, `output` how it was typed, and `shards` are the names of directories in it."""
    before = "" if is_relative_to_itself(output) else f"{output}/"
    with atomic_file(os.path.join(directory, NAME)) as file:
        for shard in shards:
            file.write(os.fsencode(f"{before}{shard} {datatypes}\n"))
