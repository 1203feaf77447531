"""A .bin and its .idx: what TouchNet's and Megatron-LM's shards, which are made of such pairs, have in common."""

from __future__ import annotations

from touchfs.errors import FormatError
from touchfs.format.idx import mmidx
from touchfs.source.local import FileIdentity, LocalFile

INDEX_SUFFIX, DATA_SUFFIX = ".idx", ".bin"


def read_index(path: str, identity: FileIdentity, bin_size: int) -> mmidx.Index:
    """Read and parse a whole index.

    `bin_size` is the size of its .bin. Raises FormatError, ChangedError, SourceError.
    """
    file = LocalFile(path, identity)
    try:
        return mmidx.parse_index(file.read(0, identity.size), bin_size)
    except FormatError as error:
        raise error.at(path) from error
    finally:
        file.close()


def lonely_data(name: str, size: int) -> str:
    """The problem text for a .bin that is not empty though its index has no samples."""
    return f"{name} has {size} bytes, and its index has no sample: not shown"
