"""A .bin and its .idx: what TouchNet's and Megatron-LM's shards, which are made of such pairs, have in common."""

from __future__ import annotations

from touchfs.containers.touchnet.layout import mmidx
from touchfs.core.errors import FormatError
from touchfs.core.extent import drive
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint

_LARGE = 1 << 24


def read_index(path: str, fingerprint: Fingerprint, bin_size: int) -> mmidx.Index:
    """Read and parse a whole index.

    `bin_size` is the size of its .bin. Raises FormatError, ChangedError, SourceError.
    """
    file, size = DATA.open(path, fingerprint), fingerprint.size
    try:
        if size > _LARGE:  # what it claims is compared with the .bin before it takes memory
            drive(mmidx.scan_header(mmidx.parse_header(file.read(0, mmidx.HEADER_SIZE), size), bin_size), file)
        return mmidx.parse_index(file.read(0, size), bin_size)
    except FormatError as error:
        raise error.at(path) from error
    except MemoryError as error:
        raise FormatError(f"an index of {size:,} bytes does not fit in memory", path=path) from error
    finally:
        file.close()


def lonely_data(name: str, size: int) -> str:
    """The problem text for a .bin that is not empty though its index has no samples."""
    return f"{name} has {size} bytes, and its index has no sample: not shown"
