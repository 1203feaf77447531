"""`touchfs` with requests that end who answers them: `python fatal_daemon.py LOG ARGUMENTS…`, as for the command.

    a listing of a shard called `deadly`             dies
    the making of an iterator called `deadly`        dies, in a thread of the control process
    a look-up of a name that begins with `stuck`     never returns, and keeps the interpreter
    a read of a file whose path has `dies` in it     dies, in a thread
    a read of a file whose path has `slow` in it     takes a third of a second, and as long as there is LOG.held

Each writes its process into LOG before it does so. While the file exists that FULL in the environment names, no process
can be forked and no thread started, as where a user has as many tasks as he may.
"""

import ctypes
import errno
import os
import sys
import threading
import time
from pathlib import Path

from touchfs_mount.control import directory

from touchfs.cli.main import main
from touchfs.tree import catalog_view, tree

LOG = Path(sys.argv.pop(1)).absolute()
HELD = LOG.with_name(f"{LOG.name}.held")


def note(what: str) -> None:
    with open(LOG, "a") as log:
        log.write(f"{what} {os.getpid()}\n")


class Fatal:
    """A content that is read in a thread."""

    def __init__(self, content, what: str) -> None:
        self._content = content
        self._what = what
        self.size = content.size

    def read_nowait(self, offset: int, length: int) -> None:
        return None

    def read(self, offset: int, length: int) -> bytes:
        note(self._what)
        if self._what == "dies":
            os.abort()
        time.sleep(0.3)
        while HELD.exists():
            time.sleep(0.01)
        return self._content.read(offset, length)


class CatalogView(catalog_view.CatalogView):
    def entries(self, directory, after):
        if "deadly" in self._path(directory):
            note("deadly")
            os.abort()
        return super().entries(directory, after)

    def find(self, directory, name, *, is_guest=False):
        if name.startswith(b"stuck"):
            note("stuck")
            ctypes.PyDLL(None).sleep(1000)
        return super().find(directory, name)

    def content(self, inode):
        content = super().content(inode)
        what = next((what for what in ("dies", "slow") if what in self._path(inode)), None)
        return Fatal(content, what) if what else content

    def _path(self, inode) -> str:
        if inode >> 32 & 0xFFFFF == 0:
            return ""
        shard, table, row = self._row(inode)
        return f"{shard.shard.name}/{os.fsdecode(table.path(row))}"


class ControlEntries(directory.ControlEntries):
    def make_iterator(self, name, maker):
        if name == b"deadly":
            note("deadly iterator")
            os.abort()
        return super().make_iterator(name, maker)


def while_full(function, error):
    def call(*arguments, **options):
        if Path(os.environ["FULL"]).exists():
            raise error
        return function(*arguments, **options)

    return call


if __name__ == "__main__":
    if "FULL" in os.environ:
        os.fork = while_full(os.fork, BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        threading.Thread.start = while_full(threading.Thread.start, RuntimeError("can't start new thread"))
    tree.CatalogView, directory.ControlEntries = CatalogView, ControlEntries
    main()
