"""Images as a second reader reads them: the kernel is asked in tests/mount/test_kernel_mount.py."""

import random
import stat
import zlib
from dataclasses import replace

import google_crc32c
import numpy as np
import pytest
from erofs_reader import Extent, Image

from touchfs.core.errors import FormatError
from touchfs.format.erofs.chunks import copied_sizes
from touchfs.format.erofs.directories import EntryNames
from touchfs.format.erofs.inodes import FileInodes, Owner, build_link
from touchfs.format.erofs.layout import BLOCK, DEVICES_MAX, FILE_MAX, SLOTS_PER_BLOCK
from touchfs.format.erofs.subtree import SubtreeRows, build_subtree
from touchfs.format.erofs.superblock import Head, build_head, meta_block, parse_head, parse_image

OWNER = Owner(1000, 1001, 0o440, 0o750, 1_700_000_000)


def image_of(tree, owner=OWNER, build_time=OWNER.mtime, devices=(7, 9)) -> bytes:
    """An image whose root has files (tuples of size, device, block, and block of the copy) and directories (dicts)."""
    names, parents, is_file, files = [b""], [0], [False], []
    level = [(0, tree)]
    while level:
        below = []
        for parent, directory in level:
            for name, what in sorted(directory.items()):
                names.append(name)
                parents.append(parent)
                is_file.append(isinstance(what, tuple))
                if isinstance(what, tuple):
                    files.append((*what, 0)[:4])
                else:
                    below.append((len(names) - 1, what))
        level = below
    columns = np.array(files, np.int64).reshape(-1, 4).T
    rows = SubtreeRows(EntryNames.of(names), np.array(parents), np.array(is_file), FileInodes(owner, *columns, own=5))
    meta = meta_block(len(devices))
    first = SLOTS_PER_BLOCK
    body = bytes(BLOCK) + build_subtree(rows, owner, first, meta + 1, first, build_time)
    blocks = meta + len(body) // BLOCK
    checksum = zlib.crc32(body[:BLOCK], zlib.crc32(body[BLOCK:]))
    return build_head(Head(devices, first, len(names), build_time, meta, blocks, 1, checksum)) + body


def flat(tree, path=b""):
    for name, what in tree.items():
        yield path + b"/" + name, what
        if isinstance(what, dict):
            yield from flat(what, path + b"/" + name)


def random_tree(dice, depth=0):
    tree = {}
    for _ in range(dice.choice([0, 1, 3, 30, 200])):
        length = dice.choice([1, 2, 3, 10, 60, 254, 255])
        name = bytes(dice.choice(b"+-.a%z\xc3~") for _ in range(length))
        if name in (b".", b".."):
            continue
        is_directory = depth < 3 and dice.random() < 0.1
        size = dice.choice([0, 1, BLOCK, BLOCK + 1, 10**6, 2**32 - 1, 2**32, FILE_MAX])
        file = size, dice.randrange(1, 3), dice.randrange(2**32)
        tree[name] = random_tree(dice, depth + 1) if is_directory else file
    return tree


# Of no entry, of one, of one level, and of four levels below a small root and a large one.
SEEDS = (2, 3, 0, 9, 10)


@pytest.mark.parametrize(
    "seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(12) if seed not in SEEDS)]
)
def test_a_tree_is_read_as_it_was_written(seed):
    dice = random.Random(seed)
    tree = random_tree(dice)
    found = Image(image_of(tree)).tree()
    expected = dict(flat(tree))
    assert found.keys() == {b"", *expected}
    for path, what in expected.items():
        inode = found[path]
        assert (inode.user, inode.group, inode.mtime) == (1000, 1001, OWNER.mtime)
        if isinstance(what, dict):
            assert inode.mode == stat.S_IFDIR | 0o750
        else:
            size, device, block = what
            assert (inode.mode, inode.links, inode.is_extended) == (stat.S_IFREG | 0o440, 1, size >= 2**32)
            assert inode.extent == Extent(device, block * BLOCK, size)


@pytest.mark.parametrize("size", [1, 511, 513, 1025, 4097, 100_001, 10**6 + 1, 2**32 + 5, 10**12 + 1])
def test_the_end_of_a_whole_file_is_in_the_image(size):
    (copied,) = copied_sizes(np.array([size])).tolist()
    found = Image(image_of({b"a": (size, 2, 0, 77), b"b": (600, 1, 5)})).tree()
    *own, copy = found[b"/a"].extents
    assert copy == Extent(5, 77 * BLOCK, copied)
    assert all(device == 2 and length % BLOCK == 0 for device, _, length in own), "the kernel reads whole blocks"
    assert [offset for _, offset, _ in own] == [number * (size - copied) // len(own) for number in range(len(own))]
    assert found[b"/b"].extent == Extent(1, 5 * BLOCK, 600)
    assert copied + 8 * len(own) <= min(size, 600 + 10 * size**0.5), "an image is small"


def test_nothing_of_a_file_is_copied_whose_last_block_is_full():
    sizes = np.array([0, 512, 1024, 10**6 // 512 * 512, 2**40])
    assert not copied_sizes(sizes).any()


@pytest.mark.parametrize(
    ("owner", "build_time", "is_extended"),
    [
        (OWNER, OWNER.mtime, False),
        (OWNER, OWNER.mtime - 2**32 + 1, False),
        (OWNER, OWNER.mtime - 2**32, True),
        (OWNER, OWNER.mtime + 1, True),
        (replace(OWNER, user=65535, group=65535), OWNER.mtime, False),
        (replace(OWNER, user=65536), OWNER.mtime, True),
        (replace(OWNER, group=2**32 - 2), OWNER.mtime, True),
        (replace(OWNER, mtime=-5), -5, False),
    ],
)
def test_what_a_compact_inode_cannot_hold_has_an_extended_one(owner, build_time, is_extended):
    found = Image(image_of({b"a": (5, 1, 3), b"d": {}}, owner, build_time)).tree()
    for path in (b"/a", b"/d"):
        assert (found[path].user, found[path].group, found[path].mtime) == (owner.user, owner.group, owner.mtime)
    assert found[b"/a"].is_extended is is_extended


def test_the_superblock_says_what_is_ours():
    data = image_of({b"a": (5, 1, 3)})
    image = Image(data)
    block = bytearray(data[1024:1536])
    block[4:8] = bytes(4)
    assert image.checksum == google_crc32c.value(bytes(block)) ^ 0xFFFFFFFF, "the kernel does not invert the result"
    assert (image.block, image.devices, image.volume.rstrip(b"\0")) == (512, 2, b"touchfs")
    assert [(tag, blocks, mapped) for tag, blocks, mapped, _ in image.tags] == [(bytes(64), 7, 0), (bytes(64), 9, 0)]
    assert image.blocks * 512 == len(data)
    assert parse_image(memoryview(data)) == parse_head(data)
    assert parse_head(data).devices == (7, 9)


def test_every_damaged_byte_is_found():
    data = image_of({b"a": (5, 1, 3), b"d": {b"x": (6, 2, 4)}})
    covered = [*range(1024, 1536), *range(meta_block(2) * BLOCK, len(data))]
    for at in covered:
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(FormatError):
            parse_image(memoryview(damaged))


@pytest.mark.parametrize("size", [0, 1023, 1024, 1535, 1536, 1800, -512, -1])
def test_an_image_that_was_cut_is_refused(size):
    with pytest.raises(FormatError):
        parse_image(memoryview(image_of({b"a": (5, 1, 3)}))[:size])


@pytest.mark.parametrize("name", [b"", b".", b"..", b"n" * 256])
def test_a_name_that_no_directory_may_have_is_refused(name):
    with pytest.raises(FormatError):
        image_of({name: (5, 1, 3)})


def test_no_more_devices_than_the_format_holds():
    assert meta_block(DEVICES_MAX) * BLOCK >= 1536 + 128 * DEVICES_MAX
    with pytest.raises(FormatError, match="65,536 files are too many for an image"):
        meta_block(DEVICES_MAX + 1)


@pytest.mark.parametrize("length", [1, 30, 448, 449, 4000])
def test_the_target_of_a_link_is_behind_its_inode_or_in_blocks(length):
    target = b"t" * length
    inode = build_link(OWNER, 16, target, 99)
    assert (len(inode) > 64) == (length <= 448)
    head = build_head(Head((), 16, 1, 0, meta_block(0), 9, 1, 0))
    found = Image(head + bytes(BLOCK) + inode.ljust(2 * BLOCK, b"\0")).inode(16)
    assert found.mode == stat.S_IFLNK | 0o777
    assert found.extent.offset == (99 * BLOCK if length > 448 else len(head) + BLOCK + 64)
