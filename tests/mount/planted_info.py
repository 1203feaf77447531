"""A file system that calls itself touchfs: its `user.touchfs.info` is the text on stdin.

Arguments: the mount point, its source and its kind.
"""

import os
import stat
import sys

import pyfuse3
import trio

POINT, SOURCE, KIND = sys.argv[1:]
TEXT = sys.stdin.buffer.read()
ROOT = pyfuse3.ROOT_INODE


class Planted(pyfuse3.Operations):
    async def getattr(self, inode, ctx=None):
        attributes = pyfuse3.EntryAttributes()
        attributes.st_ino, attributes.st_mode = inode, stat.S_IFDIR | 0o755
        return attributes

    async def getxattr(self, inode, name, ctx):
        if (inode, name) != (ROOT, b"user.touchfs.info"):
            raise pyfuse3.FUSEError(pyfuse3.ENOATTR)
        return TEXT


pyfuse3.init(Planted(), POINT, {*pyfuse3.default_options, f"fsname={SOURCE}", f"subtype={KIND}"})
os.close(1)  # it is mounted
trio.run(pyfuse3.main)
