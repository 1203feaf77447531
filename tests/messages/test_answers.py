"""Answers, taken apart by the layout of linux/fuse.h as ctypes has it."""

import ctypes
import stat

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kernel_messages import MESSAGES
from touchfs_mount.messages import answers, notifications
from touchfs_mount.messages.requests import BUFFER_SIZE, HEADER, MAX_WRITE, parse_init

from touchfs.core.packed_bytes import PackedBytes

u16, u32, u64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
TIME = 1_700_000_000_123_456_789


def fields(*named):
    return [(name, kind) for kind, names in named for name in names.split()]


class Attr(ctypes.Structure):
    _fields_ = fields(
        (u64, "ino size blocks atime mtime ctime"),
        (u32, "atimensec mtimensec ctimensec mode nlink uid gid rdev blksize flags"),
    )


class EntryOut(ctypes.Structure):
    _fields_ = [
        *fields((u64, "nodeid generation entry_valid attr_valid"), (u32, "entry_valid_nsec attr_valid_nsec")),
        ("attr", Attr),
    ]


class AttrOut(ctypes.Structure):
    _fields_ = [*fields((u64, "attr_valid"), (u32, "attr_valid_nsec dummy")), ("attr", Attr)]


class InitOut(ctypes.Structure):
    _fields_ = [
        *fields(
            (u32, "major minor max_readahead flags"),
            (u16, "max_background congestion_threshold"),
            (u32, "max_write time_gran"),
            (u16, "max_pages map_alignment"),
            (u32, "flags2 max_stack_depth"),
            (u16, "request_timeout"),
        ),
        ("unused", u16 * 11),
    ]


class Statfs(ctypes.Structure):
    _fields_ = [
        *fields((u64, "blocks bfree bavail files ffree"), (u32, "bsize namelen frsize padding")),
        ("spare", u32 * 6),
    ]


def taken_apart(kind, data: bytes):
    assert len(data) == ctypes.sizeof(kind)
    return kind.from_buffer_copy(data)


COMMON = answers.common(stat.S_IFREG | 0o444, TIME, 1000, 100)


def check(attr: Attr, size: int = 1000) -> None:
    assert (attr.ino, attr.size, attr.blocks, attr.nlink) == (7, size, -(-size // 512), 1)
    assert (attr.mode, attr.uid, attr.gid) == (stat.S_IFREG | 0o444, 1000, 100)
    assert {attr.atime, attr.mtime, attr.ctime} == {TIME // 10**9}
    assert {attr.atimensec, attr.mtimensec, attr.ctimensec} == {TIME % 10**9}


def test_an_entry_has_the_kernels_layout():
    entry = taken_apart(EntryOut, answers.entry(7, 1000, COMMON, 5, 3600))
    assert (entry.nodeid, entry.entry_valid, entry.attr_valid) == (7, 3600, 5)
    check(entry.attr)
    missing = taken_apart(EntryOut, answers.missing(9))
    assert (missing.nodeid, missing.entry_valid) == (0, 9)


def test_attributes_have_the_kernels_layout():
    found = taken_apart(AttrOut, answers.attr(7, 1000, COMMON, 5))
    assert found.attr_valid == 5
    check(found.attr)


def test_entries_of_a_listing_are_aligned():
    for length in range(1, 20):
        record = answers.dirent(7, stat.S_IFDIR, b"n" * length, 3)
        assert len(record) % 8 == 0
        assert record[:8] + record[8:16] == (7).to_bytes(8, "little") + (3).to_bytes(8, "little")
        assert record[16:24] == length.to_bytes(4, "little") + (stat.S_IFDIR >> 12).to_bytes(4, "little")
        assert record[24 : 24 + length] == b"n" * length


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=255), st.integers(1, (1 << 63) - 1)), min_size=1),
    st.integers(0, (1 << 63) - 200),
    st.integers(0, 1 << 15),
)
def test_many_files_of_a_listing_are_as_one_after_the_other(files, first, room):
    names, sizes = [name for name, _ in files], [size for _, size in files]
    common, expected = answers.common(stat.S_IFREG | 0o444, TIME, 1000, 100), b""
    for number, (name, size) in enumerate(files):
        record = answers.direntplus(first + number, stat.S_IFREG, size, common, 9, 9, name, first // 2 + number)
        if len(expected) + len(record) > room:
            break
        expected += record
    assert answers.files_plus(first, PackedBytes.of(names), np.array(sizes), common, 9, first // 2, room) == expected


def test_the_first_answer_asks_for_what_the_kernel_offers_and_no_more():
    offer = parse_init(MESSAGES["INIT"])
    out = taken_apart(InitOut, answers.init(offer))
    assert (out.major, out.minor, out.max_pages, out.max_write) == (7, 45, 256, MAX_WRITE)
    assert out.flags == answers.FLAGS & offer.flags == answers.FLAGS
    assert out.max_background > out.congestion_threshold > 12
    older = taken_apart(InitOut, answers.init(offer._replace(minor=31, flags=1)))
    assert (older.minor, older.flags) == (31, 1)
    assert MAX_WRITE + HEADER.size + 40 <= BUFFER_SIZE  # a smaller buffer is EINVAL for ever


def test_a_file_system_has_files_and_no_free_room():
    told = taken_apart(Statfs, answers.statfs(8, 3, 255))
    assert (told.blocks, told.bfree, told.bavail, told.files, told.namelen) == (8, 0, 0, 3, 255)


def test_notifications_answer_no_request():
    for code, message in (
        (2, notifications.invalidate_inode(7)),
        (3, notifications.invalidate_entry(7, b"name")),
        (7, notifications.resend()),
    ):
        length, error, unique = answers.HEADER.unpack_from(message)
        assert (length, error, unique) == (len(message), code, 0)
    assert notifications.invalidate_entry(7, b"name").endswith(b"name\0")
