"""Write indexes for other tools: bare offsets beside a JSONL file or a tar. `format.idx.offsets` describes them.

One pass over the data makes them, reading only headers of a tar. They are written as they are computed, so memory does
not grow with the data (except NeMo's v2, see `format.tar.grouping`). Nothing is written for data that is damaged,
compressed or in another format, nor for a tar whose members do not have the structure that readers of the index expect.

The bytes for Lhotse equal those that it writes itself, with one exception: it takes the bytes it has read of a tar as
the tar's size, which can be 10240 too few. Its own packer then refuses the index. Here the size is always right.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from touchfs.containers.lines import layout as jsonl
from touchfs.containers.tar.layout import members as tar
from touchfs.containers.tar.layout.grouping import COMPANION_SUFFIX, INDEX_SUFFIX, WDS_V2_SUFFIX, Dialect, grouping
from touchfs.containers.tar.layout.header import BLOCK
from touchfs.core.errors import FormatError, UsageError, map_os_errors
from touchfs.core.extent import Buffer
from touchfs.core.progress import reached
from touchfs.format.idx.offsets import OFFSET, Offsets
from touchfs.peers.judge import is_tar
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import FileType, StoredFile
from touchfs.source.upload import new_file

_READ_SIZE = 2**20
_BLOCK = 2**13  # offsets written at once
_FIRST_LINE_MAX = 2**20  # a longer one is not checked
_EMPTY_OBJECT = b"{}"
_COMPRESSED = (
    (b"\x1f\x8b", ".gz", "gunzip"),
    (b"\x28\xb5\x2f\xfd", ".zst", "unzstd"),
    (b"\xfd7zXZ\0", ".xz", "unxz"),
    (b"BZh", ".bz2", "bunzip2"),
    (b"\x04\x22\x4d\x18", ".lz4", "unlz4"),
)
COMPRESSED_SUFFIXES = tuple(suffix for _, suffix, _ in _COMPRESSED)
_USTAR_AT, _USTAR = 257, b"ustar"


@dataclass(frozen=True, slots=True)
class Report:
    """The number of samples, and a `remark` on something that readers of the data will fail on, if anything."""

    samples: int
    remark: str = ""


def index_path(data: str, dialect: Dialect | None, output_dir: str | None = None) -> str:
    """The path at which readers expect the index of `data`. `dialect` is None for JSONL."""
    suffix = WDS_V2_SUFFIX if dialect is Dialect.WDS_V2 else INDEX_SUFFIX
    return (data if output_dir is None else os.path.join(output_dir, os.path.basename(data))) + suffix


def write_index(data: str, index: str, dialect: Dialect | None, name: str = "") -> Report:
    """Write the index of `data`, replacing any other. One that names its data has the `name`, by default `data`.

    Raises FormatError with the offset in `data`.
    """
    fingerprint = identify_as(data, dialect)
    source, size = DATA.open(data, fingerprint), fingerprint.size
    remark = _check_first_line(source, size) if dialect is None else _check_end(source, size)
    digest = hashlib.sha256() if dialect is Dialect.WDS_V2 else None
    written = 0
    with new_file(index) as file:
        last = np.zeros(1, np.int64)
        for block in offset_blocks(source, size, dialect):
            if dialect is None and written and not remark:
                remark = _find_short(source, np.append(last, block), size, first=written)
            stored = block.astype(OFFSET, copy=False).tobytes()
            if digest is not None:
                digest.update(stored)
            file.write(stored)
            written += len(block)
            last = block[-1:]
        source.open()  # raises ChangedError if the file changed meanwhile
    if digest is not None:
        files = sum(member.kind is tar.MemberType.FILE for member in tar.members(source.read, size))
        with new_file(index + COMPANION_SUFFIX) as file:
            file.write(_companion(name or data, fingerprint, files, written - 1, digest.hexdigest()))
    return Report(written - 1, remark)


def identify(data: str) -> Fingerprint:
    """The fingerprint of a regular file that is not compressed.

    Raises UsageError, NotFoundError, SourceError, FormatError.
    """
    found = DATA.stat(data)
    if found.type is FileType.DIRECTORY:
        raise UsageError("is a directory: name the files in it, or `touchfs index shar` it", path=data)
    if found.type is not FileType.FILE:
        raise UsageError("is not a regular file, and only those can be indexed", path=data)
    with map_os_errors(data), DATA.stream(data) as file:
        head = file.read(len(_COMPRESSED[2][0]))
    for magic, suffix, tool in _COMPRESSED:
        if head.startswith(magic) or data.endswith(suffix):
            problem = (
                f"is compressed, and offsets are of plain bytes: `{tool}` it first, or let touchfs read it as it is"
            )
            raise FormatError(problem, path=data)
    return found.fingerprint


def identify_as(data: str, dialect: Dialect | None) -> Fingerprint:
    """The fingerprint of a file that may have an index of this dialect.

    Raises FormatError for JSON lines if it is one of tars, and for a tar if it is None; and as `identify`.
    """
    fingerprint = identify(data)
    source, size = DATA.open(data, fingerprint), fingerprint.size
    head = bytes(source.read(0, min(size, _FIRST_LINE_MAX)))
    if dialect is None and head.startswith(_USTAR, _USTAR_AT):
        raise FormatError("is a tar: `touchfs index tar` or `touchfs index webdataset` it", path=data)
    if dialect is not None and not is_tar(source, size) and _begins_with_object(head):
        raise FormatError("is JSON lines: `touchfs index jsonl` it", path=data)
    return fingerprint


def _begins_with_object(head: bytes) -> bool:
    offset, length = jsonl.value_span(head.partition(b"\n")[0])
    try:
        return isinstance(json.loads(head[offset : offset + length]), dict)
    except (ValueError, RecursionError):
        return False


def offset_blocks(source: StoredFile, size: int, dialect: Dialect | None) -> Iterator[Offsets]:
    """All numbers of an index, in blocks: the offsets of samples, then the last number of the dialect."""
    try:
        if dialect is None:
            yield from jsonl.line_offsets(_pieces(source, size))
        else:
            yield from _tar_blocks(source, size, dialect)
    except FormatError as error:
        error.at(source.path)
        raise


def _pieces(source: StoredFile, size: int) -> Iterator[Buffer]:
    for at in range(0, size, _READ_SIZE):
        yield source.read(at, min(_READ_SIZE, size - at))
        reached(at, size)


def _tar_blocks(source: StoredFile, size: int, dialect: Dialect) -> Iterator[Offsets]:
    group = grouping(dialect)
    begins, file, garbage = (
        group.begins,
        tar.MemberType.FILE,
        tar.MemberType.GARBAGE,
    )  # an enumeration's attributes are slow
    block: list[int] = []
    member = None
    for member in tar.members(source.read, size):
        name, kind, offset = member[0], member[1], member[2]
        if kind is garbage:
            raise FormatError("the bytes after the end of the archive are not a tar", offset=offset)
        if begins(name, offset, kind is file):
            block.append(offset)
            if len(block) == _BLOCK:
                yield np.array(block, np.int64)
                reached(offset, size)
                block = []
    group.finish()
    end = member.end if member is not None else 0
    block.append(min(end, size) if dialect is Dialect.ENERGON else size)
    yield np.array(block, np.int64)


def _check_first_line(source: StoredFile, size: int) -> str:
    """Raise FormatError unless the file is JSONL. Returns a remark if it begins with a byte order mark."""
    head = bytes(source.read(0, min(size, _FIRST_LINE_MAX)))
    line, line_feed, _ = head.partition(b"\n")
    offset, length = jsonl.value_span(line)
    try:
        if length and (line_feed or len(head) == size):
            json.loads(line[offset : offset + length])
    except (ValueError, RecursionError) as error:
        problem = "line 1 is not JSON, as that of JSONL is: is it one value over several lines?"
        raise FormatError(problem, path=source.path, offset=0) from error
    return "it begins with a byte order mark, on which readers of the index fail" if head.startswith(jsonl.BOM) else ""


def _check_end(source: StoredFile, size: int) -> str:
    """A remark on a tar without zero blocks at its end, the only sign of a cut between two members."""
    end = source.read(max(size - BLOCK, 0), min(BLOCK, size))
    return "" if len(end) == BLOCK and not any(end) else "it has no end mark, as if it had been cut"


def _find_short(source: StoredFile, offsets: Offsets, size: int, first: int) -> str:
    """A remark on the first line without a JSON object. `first` is the number of the line at offsets[0]."""
    sizes = np.diff(offsets)
    if offsets[-1] == size and sizes[-1] == len(_EMPTY_OBJECT) and source.read(int(offsets[-2]), 2) == _EMPTY_OBJECT:
        sizes[-1] += 1  # the last line needs no line feed
    short = sizes <= len(_EMPTY_OBJECT)
    if not short.any():
        return ""
    place = int(short.argmax())
    return f"line {first + place}, at byte {offsets[place]}, is blank or no object, on which readers of the index fail"


def _companion(name: str, fingerprint: Fingerprint, files: int, samples: int, digest: str) -> bytes:
    value = {
        "format": "nemo-wds-sample-index",
        "version": 2,
        "sample_key_algorithm": "posix-parent-plus-basename-prefix-before-first-dot-v1",
        "source": {
            "path": name,  # NeMo compares it, as a string, with the path that it is given
            "size_bytes": fingerprint.size,
            "mtime_ns": fingerprint.mtime_ns,
            "object_identity": None,
        },
        "regular_member_count": files,
        "sample_count": samples,
        "offsets_sha256": digest,
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
