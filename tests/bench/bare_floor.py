"""The least that Python does for a file without opens: one blocking read, one answer, arithmetic and a slice of a map.

`python bare_floor.py MOUNTPOINT DATA COUNT SIZE FIRST STRIDE` serves f000000 … f(COUNT-1), each SIZE bytes of DATA from
FIRST + number * STRIDE on. It has neither a tree nor threads nor counters: what touchfs takes more is what those cost.
"""

import errno
import mmap
import os
import stat
import struct
import sys

from touchfs_mount.daemon.session import answer_init
from touchfs_mount.messages.requests import BUFFER_SIZE, HEADER, Opcode
from touchfs_mount.mountpoints.connecting import Connecting, connect

ROOT, FIRST_INODE, FOREVER = 1, 1000, 3600
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = "QQQQQQIIIIIIIIII"
ENTRY, ATTR = struct.Struct(f"<QQQQII{ATTRIBUTES}"), struct.Struct(f"<QII{ATTRIBUTES}")
READ = struct.Struct("<8xQI")


def serve(descriptor: int, data: memoryview, count: int, size: int, first: int, stride: int) -> None:
    """Until the file system is unmounted."""

    def attributes(inode: int) -> tuple[int, ...]:
        mode = stat.S_IFDIR | 0o755 if inode == ROOT else stat.S_IFREG | 0o444
        return (
            inode,
            0 if inode == ROOT else size,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            mode,
            1,
            os.getuid(),
            os.getgid(),
            0,
            1 << 17,
            0,
        )

    buffer = bytearray(BUFFER_SIZE)
    while True:
        try:
            length = os.readv(descriptor, (buffer,))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            continue  # withdrawn
        _, opcode, unique, inode, *_ = HEADER.unpack_from(buffer)
        body: bytes | memoryview = b""
        problem = 0
        if opcode == Opcode.READ:
            offset, wanted = READ.unpack_from(buffer, HEADER.size)
            begin = first + (inode - FIRST_INODE) * stride
            body = data[begin + offset : begin + min(offset + wanted, size)]
        elif opcode == Opcode.LOOKUP:
            number = int(buffer[HEADER.size + 1 : length - 1])
            if number < count:
                node = FIRST_INODE + number
                body = ENTRY.pack(node, 0, FOREVER, FOREVER, 0, 0, *attributes(node))
            else:
                problem = errno.ENOENT
        elif opcode == Opcode.GETATTR:
            body = ATTR.pack(FOREVER, 0, 0, *attributes(inode))
        elif opcode in (Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT):
            continue
        else:
            problem = errno.ENOSYS
        os.writev(descriptor, (ANSWER.pack(ANSWER.size + len(body), -problem, unique), body))


if __name__ == "__main__":
    _, where, path, *numbers = sys.argv
    with open(path, "rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    connection = connect(Connecting(where, "floor", "floor", True, False, False))
    answer_init(connection, where)
    serve(connection, mapped, *map(int, numbers))
