"""A synthetic file system on the real daemon: many rows whose bytes are arithmetic, and one control file.

`python spike_daemon.py MOUNTPOINT STATE_DIR WORKERS LOOP [no-resend]` serves

    data/0000000 … data/0099999   `size_of(row)` bytes of `bytes_of(row)`; every 16th row is read through a thread
    next                          one open = one step of a counter, kept in SQLite
    late                          how many late replies there were
    slow-500                      `slow`, after 500 ms in a thread; and so on

SPIKE_ROWS in the environment says how many rows there are.
"""

import errno
import os
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyfuse3
from touchfs_mount.daemon.renewal import Renewal
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.daemon.supervisor import serve
from touchfs_mount.loop.loop import LATE_REPLIES
from touchfs_mount.mounting.libfuse import MountOptions
from touchfs_mount.mounting.mountpoint import prepare, resolve
from touchfs_mount.requests.environment import Environment, Operations

ROWS = int(os.environ.get("SPIKE_ROWS", "100000"))
DATA, NEXT, LATE, FIRST_ROW = 2, 3, 4, 10
FIRST_SLOW = FIRST_ROW + ROWS
SLOW = b"slow\n"
MOUNTED_AT = time.time_ns()


def size_of(row: int) -> int:
    return 1 + row * 7919 % 50_000


def bytes_of(row: int, offset: int, length: int) -> bytes:
    """Each 8 bytes name their row and place, so that a byte of another row or place is seen."""
    end = min(offset + length, size_of(row))
    first, last = offset // 8, -(-end // 8)
    text = b"".join(b"%04x%04x" % (row & 0xFFFF, place & 0xFFFF) for place in range(first, last))
    return text[offset - 8 * first : end - 8 * first]


class Spike(Operations):
    def __init__(self, state: Path, shared: Shared) -> None:
        super().__init__()
        self._state = state
        self._shared = shared
        self._entered = lambda: None
        # Closed before the fork: one that is only forgotten stays open until the garbage collector comes, in the
        # zygote, where closing it would remove the log that the workers write.
        with closing(sqlite3.connect(state, isolation_level=None)) as store:
            store.execute("PRAGMA journal_mode=WAL")
            store.execute("CREATE TABLE counter (value INTEGER)")
            store.execute("INSERT INTO counter VALUES (0)")
            store.execute("CREATE TABLE open (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT)")

    def started(self, environment: Environment) -> None:
        self._offload = environment.offload
        self._offload_control = environment.offload_control
        self._opened = environment.opened
        if environment.entered is not None:
            self._entered = environment.entered
        self._store = sqlite3.connect(self._state, isolation_level=None, check_same_thread=False, timeout=30)
        self._store.execute("PRAGMA synchronous=OFF")
        self._lock = threading.Lock()

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        directory = inode in (pyfuse3.ROOT_INODE, DATA)
        entry.st_mode = stat.S_IFDIR | 0o555 if directory else stat.S_IFREG | 0o444
        if inode >= FIRST_SLOW:
            entry.st_size = len(SLOW)
        elif inode >= FIRST_ROW:
            entry.st_size = size_of(inode - FIRST_ROW)
        entry.entry_timeout = entry.attr_timeout = 0 if inode in (NEXT, LATE) else 3600
        entry.st_mtime_ns = entry.st_atime_ns = entry.st_ctime_ns = MOUNTED_AT
        return entry

    async def lookup(self, parent, name, ctx):
        self._entered()
        if parent == pyfuse3.ROOT_INODE and name in (b"data", b"next", b"late"):
            return self._attributes({b"data": DATA, b"next": NEXT, b"late": LATE}[name])
        if parent == pyfuse3.ROOT_INODE and name.startswith(b"slow-"):
            return self._attributes(FIRST_SLOW + int(name[5:]))
        if parent == DATA and name.isdigit() and int(name) < ROWS:
            return self._attributes(FIRST_ROW + int(name))
        raise pyfuse3.FUSEError(errno.ENOENT)

    async def getattr(self, inode, ctx):
        self._entered()
        return self._attributes(inode)

    async def opendir(self, inode, ctx):
        self._entered()
        return inode

    async def readdir(self, handle, start, token):
        self._entered()
        if handle == pyfuse3.ROOT_INODE:
            for place, (name, inode) in enumerate([(b"data", DATA), (b"next", NEXT)]):
                if place >= start and not pyfuse3.readdir_reply(token, name, self._attributes(inode), place + 1):
                    return
        else:
            for row in range(start, ROWS):
                if not pyfuse3.readdir_reply(token, b"%07d" % row, self._attributes(FIRST_ROW + row), row + 1):
                    return

    async def open(self, inode, flags, ctx):
        self._entered()
        if self._opened is not None:
            self._opened(ctx.pid)
        if inode == NEXT:
            handle = await self._offload_control("change", self._open_step)
            return pyfuse3.FileInfo(fh=handle, direct_io=True)
        # Through the page cache a reader whose read-ahead fails would just ask again.
        return pyfuse3.FileInfo(fh=inode, direct_io=inode >= FIRST_SLOW or inode == LATE, keep_cache=False)

    async def read(self, handle, offset, size):
        self._entered()
        if handle >> 62:
            text = await self._offload_control("change", self._step, handle)
            return text[offset : offset + size]
        if handle == LATE:
            return b"%d\n" % sum(counters[LATE_REPLIES] for counters in self._shared.counters) if offset == 0 else b""
        if handle >= FIRST_SLOW:
            await self._offload(handle, time.sleep, (handle - FIRST_SLOW) / 1000)
            return SLOW[offset : offset + size]
        row = handle - FIRST_ROW
        if row % 16 == 0:
            return await self._offload(row % 64, bytes_of, row, offset, size)
        return bytes_of(row, offset, size)

    async def flush(self, handle):
        self._entered()
        raise pyfuse3.FUSEError(errno.ENOSYS)

    async def release(self, handle):
        self._entered()
        if handle >> 62:
            await self._offload_control("change", self._release_step, handle)

    async def releasedir(self, handle):
        self._entered()

    async def forget(self, inodes):
        self._entered()

    async def statfs(self, ctx):
        self._entered()
        return pyfuse3.StatvfsData()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One at a time in this process: on one connection a thread's statement holds up another one's commit."""
        with self._lock:
            self._store.execute("BEGIN IMMEDIATE")
            yield self._store
            self._store.execute("COMMIT")

    def _open_step(self) -> int:
        with self._transaction() as store:
            return 1 << 62 | store.execute("INSERT INTO open (text) VALUES (NULL)").lastrowid

    def _step(self, handle: int) -> bytes:
        """The text of an open: made once, in one transaction with the step, and the same for every further read."""
        identity = handle & (1 << 62) - 1
        with self._transaction() as store:
            row = store.execute("SELECT text FROM open WHERE id = ?", (identity,)).fetchone()
            # A read that was sent twice may run after its open was released: nobody waits for it, and it must not step.
            text = row[0] if row else ""
            if text is None:
                ((value,),) = store.execute("UPDATE counter SET value = value + 1 RETURNING value").fetchall()
                text = f"{value}\n"
                store.execute("UPDATE open SET text = ? WHERE id = ?", (text, identity))
        return text.encode()

    def _release_step(self, handle: int) -> None:
        with self._transaction() as store:
            store.execute("DELETE FROM open WHERE id = ?", (handle & (1 << 62) - 1,))


if __name__ == "__main__":
    _, where, state, workers, loop, *more = sys.argv
    path = resolve(where)
    prepare(path)
    shared = Shared(int(workers))
    options = MountOptions(
        path, "spike", workers=int(workers), trio_loop=loop == "trio", resend="no-resend" not in more
    )
    nothing_new = Renewal(reopen=lambda: None, adopt=lambda generation: lambda descriptor: None)
    operations = Spike(Path(state) / "spike.sqlite", shared)
    sys.exit(serve(operations, nothing_new, shared, options, lambda: print("ready", flush=True) or ""))
