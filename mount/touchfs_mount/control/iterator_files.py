"""The directory `.touchfs/iterators/`: which files there are, with which inode numbers and modes.

An iterator's id stands where the shard id is in other inode numbers, and the row is its directory or one of its files.
Ids are never given again, so a number never means another iterator.
"""

from __future__ import annotations

import stat
from typing import NamedTuple

from touchfs.errors import ChangedError
from touchfs.iterators.iterators import WRITABLE
from touchfs.tree.inode import FIXED_VIEW, pack, unpack

README = """\
Iterators over the dataset: exact positions in a shuffled and sharded pass over it, for any program.

  mkdir train                             make one; rmdir train removes it
  echo '{"shuffle": 7}' > train/spec      what it goes over. It then begins at the start; a spec that is equal to the
                                          one it has, or differs in batch and output only, keeps the position
  cat train/next                          the next sample, or as many as `batch` says, one a line
  cat train/token > checkpoint            where it is
  cat checkpoint > train/token            go on from there, exactly

One open of `next` is one step, made at its first read; each sample is told once, whoever reads. At the end of an epoch
`next` is empty, once; the step after that begins the next epoch. Where reading `next` failed because the whole daemon
was killed, the step has usually been made: go on from the last token that was saved.

  spec      JSON: source ("samples", "segments", "merged/PLAN", or a path below one), where (an expression),
            shuffle (a seed or null), repeat (a number, or true for no end), rank, world_size,
            partition ("stride", "block"), tail ("keep", "drop", "pad"), mux (a list of source, where, shuffle, repeat,
            weight), batch, output ("path", "relpath", "key", "json"); all may be left out
  next      a step                        peek      what the next step would tell
  position  samples taken in this epoch   len       samples in an epoch
  epoch     from 0 on                     batch     samples a step takes; can be written
  token     a state, one line of JSON; written with a state, or with an item token (xattr user.touchfs.token of a file)
  reset     write 1 to begin anew, or {"epoch": 3} to begin with an epoch
  error     what was wrong with what was written last
"""

FILES = ("spec", "next", "peek", "token", "position", "len", "epoch", "batch", "reset", "error")

_DIRECTORY_ROW, FIRST_ROW = 1, 2


class ControlEntry(NamedTuple):
    """`mode` with the kind of file."""

    inode: int
    mode: int


def directory_inode(iterator: int) -> int:
    return pack(FIXED_VIEW, iterator, _DIRECTORY_ROW)


def file_inode(iterator: int, file: str) -> int:
    return pack(FIXED_VIEW, iterator, FIRST_ROW + FILES.index(file))


def file_of(inode: int) -> str:
    """The name of an iterator's file, empty for its directory."""
    row = unpack(inode)[2] - FIRST_ROW
    if row == _DIRECTORY_ROW - FIRST_ROW:
        return ""
    if not 0 <= row < len(FILES):
        raise ChangedError("this inode is not of this mount")
    return FILES[row]


def is_writable(inode: int) -> bool:
    return unpack(inode)[1] > 0 and file_of(inode) in WRITABLE


def entry_of(inode: int, wider: int) -> ControlEntry:
    """`wider` has the bits of a mode that files get besides, as far as they can be read or written at all."""
    file = file_of(inode)
    if not file:
        return ControlEntry(inode, stat.S_IFDIR | 0o555)
    if file in WRITABLE:
        return ControlEntry(inode, stat.S_IFREG | 0o644 | wider & 0o666)
    # To look is for all, to step only for the owner.
    return ControlEntry(inode, stat.S_IFREG | (0o600 | wider & 0o444 if file == "next" else 0o444))
