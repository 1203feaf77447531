"""Map files into memory without keeping a descriptor open for each, as Python's `mmap` does before 3.13.

A dataset has as many catalogs as shards, and a process may have only 64 descriptors. Mapped files are replaced by a
rename and never truncated: reading beyond the end of a truncated file would kill the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (*(ctypes.c_void_p, ctypes.c_size_t), *(ctypes.c_int,) * 3, ctypes.c_longlong)
_libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
_libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_FAILED = ctypes.c_void_p(-1).value


def map_file(descriptor: int) -> memoryview:
    """Map a whole file for reading. It stays mapped as long as a view of it exists. Raises OSError."""
    size = os.fstat(descriptor).st_size
    if not size:
        return memoryview(b"")
    address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    buffer = (ctypes.c_char * size).from_address(address)
    weakref.finalize(buffer, _libc.munmap, address, size).atexit = False
    return memoryview(buffer).cast("B").toreadonly()


def advise(view: memoryview, advice: int) -> None:
    """Tell the kernel how a view of a mapped file is going to be read, as `mmap.MADV_RANDOM`. It is a hint only."""
    if len(view):
        address = np.frombuffer(view, np.uint8).ctypes.data
        start = address & -mmap.PAGESIZE
        _libc.madvise(start, address + len(view) - start, advice)
