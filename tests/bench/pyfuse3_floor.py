"""The least that pyfuse3 does for a file: handlers that are arithmetic and a slice of a map, on a loop around poll(2).

`python pyfuse3_floor.py MOUNTPOINT DATA COUNT SIZE FIRST STRIDE` serves f000000 … f(COUNT-1), each SIZE bytes of DATA
from FIRST + number * STRIDE on. It never spins, and shares nothing with touchfs.
"""

import errno
import mmap
import os
import select
import stat
import sys
import types
from contextlib import suppress

import pyfuse3

FIRST_INODE = 1000
TIMEOUT_SECONDS = 3600


class FloorOperations(pyfuse3.Operations):
    def __init__(self, data: memoryview, count: int, size: int, first: int, stride: int) -> None:
        super().__init__()
        self._data, self._count, self._size, self._first, self._stride = data, count, size, first, stride

    def _attributes(self, inode):
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        entry.st_mode = stat.S_IFDIR | 0o755 if inode == pyfuse3.ROOT_INODE else stat.S_IFREG | 0o444
        entry.st_size = 0 if inode == pyfuse3.ROOT_INODE else self._size
        entry.entry_timeout = entry.attr_timeout = TIMEOUT_SECONDS
        return entry

    async def lookup(self, parent, name, ctx):
        if not name[1:].isdigit() or int(name[1:]) >= self._count:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._attributes(FIRST_INODE + int(name[1:]))

    async def getattr(self, inode, ctx):
        return self._attributes(inode)

    async def open(self, inode, flags, ctx):
        return pyfuse3.FileInfo(fh=inode, keep_cache=True)

    async def read(self, handle, offset, size):
        begin = self._first + (handle - FIRST_INODE) * self._stride
        return self._data[begin + offset : begin + min(offset + size, self._size)]

    async def release(self, handle):
        pass

    async def forget(self, inodes):
        pass

    async def statfs(self, ctx):
        return pyfuse3.StatvfsData()


class FloorLoop:
    """Replaces trio in pyfuse3's session loop, and is its nursery: it steps one session coroutine a request."""

    def __init__(self) -> None:
        namespace, task = types.SimpleNamespace, types.SimpleNamespace(name="session")
        self._waiting: list = []
        self.replacement = namespace(
            Lock=lambda: self,
            ClosedResourceError=ConnectionError,
            open_nursery=lambda: self,
            lowlevel=namespace(
                current_task=lambda: task,
                current_trio_token=lambda: None,
                notify_closing=lambda descriptor: None,
                wait_readable=self._wait_readable,
            ),
        )

    @staticmethod
    @types.coroutine
    def _wait_readable(descriptor):
        yield

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        pass

    def start_soon(self, function, *arguments, name=""):
        coroutine = function(*arguments)
        with suppress(StopIteration):
            coroutine.send(None)
            self._waiting.append(coroutine)

    def run(self, descriptor: int) -> None:
        """Until the file system is unmounted."""
        os.set_blocking(descriptor, False)
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        with suppress(StopIteration):
            pyfuse3.main(1, 99).send(None)
        with suppress(StopIteration):
            while True:
                ready.poll()
                coroutine = self._waiting.pop()
                coroutine.send(None)
                self._waiting.append(coroutine)


if __name__ == "__main__":
    _, where, path, *numbers = sys.argv
    with open(path, "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    options = {*pyfuse3.default_options, "fsname=floor", "ro"}
    pyfuse3.init(FloorOperations(data, *map(int, numbers)), where, options)
    (descriptor,) = [
        int(each) for each in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{each}") == "/dev/fuse"
    ]
    loop = FloorLoop()
    vars(pyfuse3)["trio"] = loop.replacement
    loop.run(descriptor)
    pyfuse3.close(unmount=False)
