"""A short text that differs when the content of a shard's files does, told from pieces of them.

Size, time and inode of a file say that it is the one that was indexed; but inodes are used again, and times can be set.
So before an index is taken over for files at another path, these pieces are compared too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import closing

from touchfs.source.local import FileIdentity, LocalFile

PIECE_SIZE = 1 << 16


def digest_ends(path: str, files: Mapping[str, FileIdentity]) -> str:
    """The digest of the head, the middle and the tail of each file of the shard at a path: 192 KiB of a large one.

    Raises what reading a file raises, ChangedError among it.
    """
    directory = path if os.path.isdir(path) else os.path.dirname(path)
    digest = hashlib.blake2b(digest_size=16)
    for name, identity in sorted(files.items()):
        with closing(LocalFile(os.path.join(directory, name), identity)) as file:
            for offset in (0, identity.size // 2, max(identity.size - PIECE_SIZE, 0)):
                digest.update(file.read(offset, min(PIECE_SIZE, identity.size - offset)))
    return digest.hexdigest()
