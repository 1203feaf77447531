"""The directory `.touchfs/iterators/`: its files, their inode numbers and modes.

In an inode number the iterator's id takes the place of the shard id, and the row is its directory or one of its files.
Ids are never reused, so an inode number never means another iterator.
"""

from __future__ import annotations

import stat
from typing import NamedTuple

from touchfs.errors import ChangedError
from touchfs.iterators.iterators import WRITABLE
from touchfs.tree.inode import FIXED_VIEW, pack, unpack

README = """\
Iterators over the dataset: exact positions in a shuffled and sharded pass over it, for any program.

  mkdir train                             create an iterator; rmdir train removes it
  echo '{"shuffle": 7}' > train/spec      define the samples and their order, and start from the beginning; a spec that
                                          changes nothing, or only batch and output, keeps the position
  cat train/next                          print the next sample, or the next `batch` samples, one per line
  cat train/token > checkpoint            save the state
  cat checkpoint > train/token            restore it: continue exactly from there

One open of `next` is one step, made at its first read; each sample is returned once, whichever process reads. At the
end of an epoch `next` is empty once; the step after that begins the next epoch. If reading `next` failed because the
whole daemon was killed, the step has usually been made: restore the last token that you saved.

  spec      JSON: source ("samples", "segments", "merged/PLAN", or a path below one), where (an expression),
            shuffle (a seed or null), repeat (a number, or true for no end), rank, world_size,
            partition ("stride", "block"), tail ("keep", "drop", "pad"), mux (a list of source, where, shuffle, repeat,
            weight), batch, output ("path", "relpath", "key", "json"); every field is optional
  next      makes a step                  peek      the text that the next step will return
  position  samples taken in this epoch   len       samples in an epoch
  epoch     counted from 0                batch     samples per step; can be written
  token     the state, one line of JSON; write a state, or an item token (xattr user.touchfs.token of a file)
  reset     write 1 to start again, or {"epoch": 3} to start with an epoch
  error     the reason why the last write failed
"""

FILES = ("spec", "next", "peek", "token", "position", "len", "epoch", "batch", "reset", "error")

_DIRECTORY_ROW, FIRST_ROW = 1, 2


class ControlEntry(NamedTuple):
    """An entry of the control directory. `mode` includes the type of file."""

    inode: int
    mode: int


def directory_inode(iterator: int) -> int:
    """The inode number of an iterator's directory."""
    return pack(FIXED_VIEW, iterator, _DIRECTORY_ROW)


def file_inode(iterator: int, file: str) -> int:
    """The inode number of an iterator's file."""
    return pack(FIXED_VIEW, iterator, FIRST_ROW + FILES.index(file))


def file_of(inode: int) -> str:
    """The name of an iterator's file, empty for its directory. Raises ChangedError for another inode."""
    row = unpack(inode)[2] - FIRST_ROW
    if row == _DIRECTORY_ROW - FIRST_ROW:
        return ""
    if not 0 <= row < len(FILES):
        raise ChangedError("this inode is not of this mount")
    return FILES[row]


def is_writable(inode: int) -> bool:
    """True for a file of an iterator that can be written."""
    return unpack(inode)[1] > 0 and file_of(inode) in WRITABLE


def entry_of(inode: int, extra_mode: int) -> ControlEntry:
    """The entry of an iterator's directory or file. `extra_mode` has extra permission bits for files, of which only
    those apply that make sense: a file that cannot be written gets no write bit.
    """
    file = file_of(inode)
    if not file:
        return ControlEntry(inode, stat.S_IFDIR | 0o555)
    if file in WRITABLE:
        return ControlEntry(inode, stat.S_IFREG | 0o644 | extra_mode & 0o666)
    # Every user may look at an iterator; only the owner may step it.
    return ControlEntry(inode, stat.S_IFREG | (0o600 | extra_mode & 0o444 if file == "next" else 0o444))
