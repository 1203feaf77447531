"""A synthetic file system on the real daemon: many rows whose bytes are arithmetic, and one control file.

`python spike_daemon.py MOUNTPOINT STATE_DIR WORKERS [no-resend]` serves

    data/0000000 … data/0099999   `size_of(row)` bytes of `bytes_of(row)`; every 16th row is read through a thread
    slow-500                      `slow`, after 500 ms in a thread, or when STATE_DIR/go-on exists; and so on
    .touchfs/late                 how many late replies there were

SPIKE_ROWS in the environment says how many rows there are.
"""

import errno
import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyfuse3
from touchfs_mount.control.handler import guarded
from touchfs_mount.daemon.renewal import Renewal
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.daemon.supervisor import serve
from touchfs_mount.messages import answers
from touchfs_mount.messages.requests import Opcode, Request
from touchfs_mount.mountpoints.control_place import ControlPlace, chosen
from touchfs_mount.mountpoints.mountpoint import prepare, resolve
from touchfs_mount.mountpoints.options import MountOptions
from touchfs_mount.numbers.cells import LATE_REPLIES
from touchfs_mount.numbers.recent_errors import RecentErrors
from touchfs_mount.requests.refusals import Refusals
from touchfs_mount.requests.server import Worker
from touchfs_mount.requests.tree_answers import RefusedError

from touchfs.tree.open_shards import WouldBlockError

ROWS = int(os.environ.get("SPIKE_ROWS", "100000"))
ROOT, DATA, LINK, FIRST_ROW = 1, 2, 3, 10
FIRST_SLOW = FIRST_ROW + ROWS
LATE = 2
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


class SpikeAnswers:
    """What stands where the answers of a tree do."""

    def __init__(self, link: bytes, go_on: Path, *, waits: bool) -> None:
        self._link = link
        self._go_on = go_on
        self._waits = waits

    def answer(self, request: Request) -> Sequence[bytes]:
        match request.opcode:
            case Opcode.LOOKUP:
                return (self._lookup(request.inode, request.name),)
            case Opcode.GETATTR:
                return (answers.attr(request.inode, *self._attributes(request.inode), 3600),)
            case Opcode.READLINK:
                return (self._link,)
            case Opcode.READ:
                return (self._read(request.inode, request.offset, request.size),)
            case Opcode.READDIR | Opcode.READDIRPLUS:
                return self._list(request)
            case Opcode.STATFS:
                return (answers.statfs(0, ROWS, 255),)
        raise RefusedError(errno.ENOSYS)

    def _attributes(self, inode: int) -> tuple[int, answers.Common]:
        mode = stat.S_IFDIR | 0o555 if inode in (ROOT, DATA) else stat.S_IFREG | 0o444
        size = 0 if inode < FIRST_ROW else len(SLOW) if inode >= FIRST_SLOW else size_of(inode - FIRST_ROW)
        if inode == LINK:
            mode, size = stat.S_IFLNK | 0o777, len(self._link)
        return size, answers.common(mode, MOUNTED_AT, os.getuid(), os.getgid())

    def _entry(self, inode: int) -> bytes:
        return answers.entry(inode, *self._attributes(inode), 3600, 3600)

    def _lookup(self, parent: int, name: bytes) -> bytes:
        if parent == ROOT and name in (b"data", b".touchfs"):
            return self._entry(DATA if name == b"data" else LINK)
        if parent == ROOT and name.startswith(b"slow-"):
            return self._entry(FIRST_SLOW + int(name[5:]))
        if parent == DATA and name.isdigit() and int(name) < ROWS:
            return self._entry(FIRST_ROW + int(name))
        return answers.missing(0)

    def _read(self, inode: int, offset: int, size: int) -> bytes:
        row = inode - FIRST_ROW
        if not self._waits and (inode >= FIRST_SLOW or row % 16 == 0):
            raise WouldBlockError
        if inode >= FIRST_SLOW:
            until = time.monotonic() + (inode - FIRST_SLOW) / 1000
            while (left := until - time.monotonic()) > 0 and not self._go_on.exists():
                time.sleep(min(left, 0.01))
            return SLOW[offset : offset + size]
        return bytes_of(row, offset, size)

    def _list(self, request: Request) -> list[bytes]:
        named = [(b"data", DATA), (b".touchfs", LINK)]
        if request.inode == DATA:
            named = [(b"%07d" % row, FIRST_ROW + row) for row in range(request.offset, min(request.offset + 800, ROWS))]
            start = request.offset
        else:
            named, start = named[request.offset :], request.offset
        room, records = request.size, []
        for cookie, (name, inode) in enumerate(named, start + 1):
            record = answers.dirent(inode, stat.S_IFREG if inode >= FIRST_ROW else stat.S_IFDIR, name, cookie)
            if request.opcode == Opcode.READDIRPLUS:
                record = self._entry(inode) + record
            room -= len(record)
            if room < 0:
                break
            records.append(record)
        return records


class SpikeControl:
    """What stands where the control directory does."""

    def __init__(self, shared: Shared, worker: Worker, refusals: Refusals) -> None:
        self._shared, self._worker, self._refusals = shared, worker, refusals

    @property
    def handlers(self):
        named = {
            "lookup": self._lookup,
            "getattr": self._getattr,
            "open": self._open,
            "read": self._read,
            "flush": self._flush,
        }
        return guarded(named, self._worker, self._refusals)

    def close(self) -> None:
        pass

    def _attributes(self, inode: int) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        entry.st_mode = stat.S_IFDIR | 0o555 if inode == ROOT else stat.S_IFREG | 0o444
        entry.st_mtime_ns = entry.st_atime_ns = entry.st_ctime_ns = MOUNTED_AT
        return entry

    async def _lookup(self, parent, name, context):
        if name != b"late":
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._attributes(LATE)

    async def _getattr(self, inode, context):
        return self._attributes(inode)

    async def _open(self, inode, flags, context):
        return pyfuse3.FileInfo(fh=inode, direct_io=True)

    async def _read(self, handle, offset, size):
        return b"%d\n" % sum(counters[LATE_REPLIES] for counters in self._shared.counters) if offset == 0 else b""

    async def _flush(self, handle):
        raise pyfuse3.FUSEError(errno.ENOSYS)


class Spike:
    """What stands where `Serving` does."""

    def __init__(self, state: Path, shared: Shared, place: ControlPlace) -> None:
        self._state = state
        self._shared = shared
        self._place = place
        self.refusals = Refusals(RecentErrors())

    def answers(self) -> tuple[SpikeAnswers, SpikeAnswers]:
        link, go_on = self._place.link, self._state / "go-on"
        return SpikeAnswers(link, go_on, waits=False), SpikeAnswers(link, go_on, waits=True)

    def control(self, worker: Worker) -> SpikeControl:
        return SpikeControl(self._shared, worker, self.refusals)


if __name__ == "__main__":
    _, where, state, workers, *more = sys.argv
    path = resolve(where)
    prepare(path)
    place = chosen(state, allow_other=False)
    shared = Shared(int(workers))
    options = MountOptions(path, "spike", workers=int(workers), resend="no-resend" not in more)
    nothing_new = Renewal(reopen=lambda: None, adopt=lambda generation: lambda descriptor: None, meanwhile=lambda: None)
    spike = Spike(Path(state), shared, place)
    sys.exit(serve(spike, nothing_new, shared, options, place, lambda: print("ready", flush=True) or ""))
