"""A file system that shows a directory as it is, and can be made slow or hang: what a network file system may do.

`python slow_files.py DATASET MOUNTPOINT DELAY_FILE` serves until it is unmounted. DELAY_FILE says the seconds that each
request takes, and how many more a read takes; it may change meanwhile. The kernel keeps nothing of what it is told.
"""

import errno
import os
import stat
import sys
from contextlib import contextmanager
from pathlib import Path

import pyfuse3
import trio


@contextmanager
def told():
    try:
        yield
    except OSError as error:
        raise pyfuse3.FUSEError(error.errno or errno.EIO) from None


class SlowFiles(pyfuse3.Operations):
    def __init__(self, source: Path, delay: Path) -> None:
        super().__init__()
        self._delay = delay
        self._paths = {pyfuse3.ROOT_INODE: source}

    async def _wait(self, *, reads: bool = False) -> None:
        begin = trio.current_time()
        while True:
            always, more = map(float, self._delay.read_text().split())
            left = begin + always + reads * more - trio.current_time()
            if left <= 0:
                return
            await trio.sleep(min(left, 0.05))

    def _attributes(self, path: Path) -> pyfuse3.EntryAttributes:
        with told():
            found = os.stat(path)
        entry = pyfuse3.EntryAttributes()
        for name in ("st_ino", "st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_ctime_ns"):
            setattr(entry, name, getattr(found, name))
        entry.st_atime_ns = found.st_mtime_ns
        entry.entry_timeout = entry.attr_timeout = 0
        self._paths.setdefault(found.st_ino, path)
        return entry

    async def lookup(self, parent, name, ctx):
        await self._wait()
        return self._attributes(self._paths[parent] / os.fsdecode(name))

    async def getattr(self, inode, ctx):
        await self._wait()
        return self._attributes(self._paths[inode])

    async def opendir(self, inode, ctx):
        return inode

    async def readdir(self, handle, start, token):
        await self._wait()
        names = sorted(os.listdir(self._paths[handle]))
        for place, name in enumerate(names[start:], start + 1):
            attributes = self._attributes(self._paths[handle] / name)
            if not pyfuse3.readdir_reply(token, name.encode(), attributes, place):
                return

    async def open(self, inode, flags, ctx):
        await self._wait()
        if not stat.S_ISREG(os.stat(self._paths[inode]).st_mode):
            raise pyfuse3.FUSEError(errno.EISDIR)
        with told():
            return pyfuse3.FileInfo(fh=os.open(self._paths[inode], os.O_RDONLY), direct_io=True)

    async def read(self, handle, offset, size):
        await self._wait(reads=True)
        return os.pread(handle, size, offset)

    async def release(self, handle):
        os.close(handle)

    async def statfs(self, ctx):
        return pyfuse3.StatvfsData()


if __name__ == "__main__":
    _, source, mountpoint, delay = sys.argv
    pyfuse3.init(SlowFiles(Path(source), Path(delay)), mountpoint, {"fsname=slow", "default_permissions"})
    print("ready", flush=True)
    trio.run(pyfuse3.main)
