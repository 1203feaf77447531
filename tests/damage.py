"""Damage as a disk does it: without a trace in the times of a file."""

import os
from pathlib import Path

from seals import resealed, resealed_json

from touchfs.indexing.place import index_directory


def flip_byte(path: Path, *offsets: int) -> None:
    """Change one bit of the byte at each offset. Only we leave a ctime, so the index gets the new one."""
    before = path.stat()
    with open(path, "r+b") as file:
        for offset in offsets:
            file.seek(offset)
            (byte,) = file.read(1)
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    old, new = (b'"ctime_ns": %d' % stat.st_ctime_ns for stat in (before, path.stat()))
    for index in filter(Path.is_file, Path(index_directory()).iterdir()):
        if old in (data := index.read_bytes()):
            times = index.stat()
            seal = resealed_json if data.startswith(b"{") else resealed
            index.write_bytes(seal(data.replace(old, new)))
            os.utime(index, ns=(times.st_atime_ns, times.st_mtime_ns))
