"""A file system that calls itself touchfs: its `.touchfs/info` is the text on stdin. Arguments: the mount point."""

import errno
import os
import stat
import sys

import pyfuse3
import trio

TEXT = sys.stdin.buffer.read()
ROOT, DIRECTORY, INFO = pyfuse3.ROOT_INODE, 2, 3


class Planted(pyfuse3.Operations):
    async def getattr(self, inode, ctx=None):
        attributes = pyfuse3.EntryAttributes()
        attributes.st_ino = inode
        attributes.st_mode = stat.S_IFREG | 0o644 if inode == INFO else stat.S_IFDIR | 0o755
        attributes.st_size = len(TEXT) if inode == INFO else 0
        return attributes

    async def lookup(self, parent_inode, name, ctx=None):
        found = {(ROOT, b".touchfs"): DIRECTORY, (DIRECTORY, b"info"): INFO}.get((parent_inode, name))
        if found is None:
            raise pyfuse3.FUSEError(errno.ENOENT)
        return await self.getattr(found)

    async def open(self, inode, flags, ctx):
        return pyfuse3.FileInfo(fh=inode)

    async def read(self, fh, off, size):
        return TEXT[off : off + size]


pyfuse3.init(Planted(), sys.argv[1], {*pyfuse3.default_options, "fsname=planted", "subtype=touchfs"})
os.close(1)  # it is mounted
trio.run(pyfuse3.main)
