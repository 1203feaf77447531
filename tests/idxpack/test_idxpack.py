import hashlib
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from touchfs.core.errors import FormatError
from touchfs.core.extent import Reads, T
from touchfs.idxpack.build import CollectionSpec, build_pack
from touchfs.idxpack.layout import HEADER, HEADER_SIZE, SEGMENT, Pack, SegmentContent, scan_pack, scan_segment


def run(plan: Reads[T], data: bytes) -> T:
    """Every request must lie in the file."""
    try:
        offset, length = next(plan)
        while True:
            assert offset >= 0
            assert length > 0
            assert offset + length <= len(data)
            offset, length = plan.send(memoryview(data)[offset : offset + length])
    except StopIteration as stop:
        result: T = stop.value
        return result


Read = tuple[list[tuple[bytes, str, SegmentContent, list[int], list[int]]], list[tuple[str, list[int]]]]


def read(data: bytes) -> Read:
    """Everything that is in a pack."""
    pack: Pack = run(scan_pack(len(data)), data)
    return (
        [(c.key, c.kind, c.content, c.segments.tolist(), c.ends.tolist()) for c in pack.collections],
        [(path, run(scan_segment(pack, i), data).tolist()) for i, path in enumerate(pack.paths)],
    )


OFFSETS = {
    "a.jsonl": np.array([0, 10, 25]),
    "b.jsonl": np.array([0]),
    "ü.tar": np.array([0, 2048, 10240]),
}
SPECS = [
    CollectionSpec("records", "json-lines", "{a,b}.jsonl", ("a.jsonl", "b.jsonl", "a.jsonl")),
    CollectionSpec("payload", "tar-members", {"list": ["ü.tar"]}, ("ü.tar", "a.jsonl")),
    CollectionSpec("listed", "json-lines", None, ("a.jsonl", "far.bin"), SegmentContent.PATHS),
    CollectionSpec("empty", "x", 1, ()),
]
PACK = b"".join(build_pack(SPECS, OFFSETS))


def array_pack() -> bytes:
    """Version 3, made by hand: one collection of two arrays, of 3 numbers and of none."""
    key = hashlib.sha256(b"key").digest()
    payload = struct.pack("<3I", 7, 2**32 - 1, 0)
    strings_at = HEADER_SIZE + 72 + 2 * 16 + 2 * 56
    payload_at = strings_at + 8
    tables = struct.pack("<32sQQQQII", key, 0, 2, 3, strings_at, 5, 2)
    tables += struct.pack("<QQQQ", 0, 3, 1, 3)
    tables += struct.pack("<QQIIQQQII", strings_at, payload_at, 0, 2, 3, 0, 12, zlib.crc32(payload), 0)
    tables += struct.pack("<QQIIQQQII", strings_at, payload_at + 12, 0, 2, 0, 0, 0, 0, 0)
    digest = hashlib.sha256(key + b"\2" + struct.pack("<3Q", 2, 3, 0)).digest()
    counts = (256, 1, 256 + 72, 2, 256 + 72 + 32, 2, strings_at, 5, payload_at, 12)
    header = HEADER.pack(b"IDXPACK2", 3, 256, *counts, digest).ljust(256, b"\0")
    return header + tables + b"route\0\0\0" + payload


def test_what_is_built_is_read() -> None:
    collections, segments = read(PACK)
    keys = [spec.key for spec in SPECS]
    assert collections == [
        (keys[0], "json-lines", SegmentContent.OFFSETS, [0, 1, 0], [2, 2, 4]),
        (keys[1], "tar-members", SegmentContent.OFFSETS, [2, 0], [2, 4]),
        (keys[2], "json-lines", SegmentContent.PATHS, [3, 4], [0, 0]),
        (keys[3], "x", SegmentContent.OFFSETS, [], []),
    ]
    assert segments == [
        ("a.jsonl", [0, 10, 25]),
        ("b.jsonl", [0]),
        ("ü.tar", [0, 2048, 10240]),
        ("a.jsonl", []),
        ("far.bin", []),
    ]


def test_a_key_is_the_hash_of_its_canonical_json() -> None:
    text = '{"kind":"k","role":"r","source_spec":{"a":["ü"],"b":1}}'
    assert CollectionSpec("r", "k", {"b": 1, "a": ("ü",)}, ()).key == hashlib.sha256(text.encode()).digest()


def test_arrays() -> None:
    collections, segments = read(array_pack())
    assert collections[0][1:] == ("route", SegmentContent.ARRAY, [0, 1], [3, 3])
    assert segments == [("", [7, 2**32 - 1, 0]), ("", [])]


def test_the_known_size_of_a_path_alone() -> None:
    data = bytearray(PACK)
    pack = run(scan_pack(len(PACK)), PACK)
    row = pack.segments[4]
    struct.pack_into("<Q", data, int(row["payload"]), 99)
    with pytest.raises(FormatError, match="checksum"):
        read(bytes(data))
    at = _segments_at(PACK) + 4 * SEGMENT.itemsize
    struct.pack_into("<II", data, at + SEGMENT.itemsize - 8, zlib.crc32(struct.pack("<Q", 99)), 0)
    with pytest.raises(FormatError, match="cannot be 99"):
        read(bytes(data))
    struct.pack_into("<I", data, at + SEGMENT.itemsize - 4, 1)
    assert read(bytes(data))[1][4] == ("far.bin", [99])


def _segments_at(data: bytes) -> int:
    at: int = HEADER.unpack_from(data)[7]
    return at


paths = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
sorted_offsets = st.lists(st.integers(0, 2**62), min_size=1, max_size=20).map(lambda found: np.array(sorted(found)))


@given(st.dictionaries(paths, sorted_offsets, max_size=6), st.data())
def test_round_trip(offsets: dict[str, NDArray[np.int64]], data: st.DataObject) -> None:
    choices = st.lists(st.sampled_from(sorted(offsets)), max_size=8) if offsets else st.just([])
    specs = [
        CollectionSpec("r", "k", i, data.draw(choices), SegmentContent(data.draw(st.integers(0, 1)))) for i in range(3)
    ]
    collections, segments = read(b"".join(build_pack(specs, offsets)))
    assert len(collections) == 3
    for spec, (key, kind, content, used, ends) in zip(specs, collections, strict=True):
        assert (key, kind) == (spec.key, "k")
        assert [segments[i][0] for i in used] == spec.paths
        assert content is spec.content
        stored = [segments[i][1] for i in used]
        if content is SegmentContent.OFFSETS:
            assert stored == [offsets[path].tolist() for path in spec.paths]
            assert np.diff(ends, prepend=0).tolist() == [len(found) - 1 for found in stored]
        else:
            assert stored == [[]] * len(spec.paths)


@pytest.mark.parametrize("made", [lambda: PACK, array_pack])
@pytest.mark.parametrize("changes", [1, pytest.param(3, marks=pytest.mark.variant)])
def test_every_flipped_byte_is_noticed(made: Callable[[], bytes], changes: int) -> None:
    """But what means nothing, a kind's text, and that a path alone is of an empty file."""
    whole = made()
    expected = read(whole)
    for position in range(len(whole)):
        for change in [(0x01, 0x80, 0xFF)[(position + i) % 3] for i in range(changes)]:
            data = bytearray(whole)
            data[position] ^= change
            try:
                found = read(bytes(data))
            except FormatError as error:
                assert error.offset is not None
                assert 0 <= error.offset <= len(whole)
                continue
            for collection, other in zip(found[0], expected[0], strict=True):
                assert collection[0] == other[0]
                assert collection[2:] == other[2:]
            for (path, numbers), (other_path, other_numbers) in zip(found[1], expected[1], strict=True):
                assert path == other_path
                assert numbers == other_numbers or (numbers, other_numbers) == ([0], [])


@given(st.integers(0, len(PACK) - 1), st.binary(max_size=10))
def test_every_cut_and_every_tail_is_noticed(size: int, tail: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read(PACK[:size])
    assert caught.value.offset is not None
    if tail:
        with pytest.raises(FormatError, match="its sections"):
            read(PACK + tail)


@given(st.integers(0, len(PACK) // 8 - 1), st.sampled_from([0, 1, 2**31, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1))
def test_any_number_anywhere(place: int, number: int) -> None:
    data = bytearray(PACK)
    struct.pack_into("<Q", data, place * 8, number)
    try:
        read(bytes(data))
    except FormatError as error:
        assert error.offset is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((0, b"IDXPACK1"), "not an index pack"),
        ((8, struct.pack("<I", 4)), "version 4"),
        ((24, struct.pack("<Q", 2**60)), "collections cannot be at 256"),
        ((HEADER_SIZE, b"x"), "digest"),
    ],
)
def test_refusals(change: tuple[int, bytes], words: str) -> None:
    at, value = change
    with pytest.raises(FormatError, match=words):
        read(PACK[:at] + value + PACK[at + len(value) :])


def test_what_cannot_be_built() -> None:
    spec = CollectionSpec("r", "k", 0, ("p",))
    for offsets in ([], [1, 0], [-1, 0]):
        with pytest.raises(FormatError, match="do not ascend"):
            b"".join(build_pack([spec], {"p": np.array(offsets, np.int64)}))
    with pytest.raises(FormatError, match="each key once"):
        b"".join(build_pack([spec, spec], {"p": np.array([0])}))
    with pytest.raises(FormatError, match="no arrays"):
        b"".join(build_pack([CollectionSpec("r", "k", 0, (), SegmentContent.ARRAY)], {}))
