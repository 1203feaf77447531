import hashlib
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.format.idx.wds_v2 import Companion, parse_companion

INDEX = struct.pack("<3Q", 0, 2048, 10240)
SOURCE = {"path": "/data/ü.tar", "size_bytes": 10240, "mtime_ns": 5, "object_identity": None}


def companion(index: bytes = INDEX, **changes: Any) -> bytes:
    value = {
        "format": "nemo-wds-sample-index",
        "version": 2,
        "sample_key_algorithm": "posix-parent-plus-basename-prefix-before-first-dot-v1",
        "source": SOURCE,
        "regular_member_count": 5,
        "sample_count": 2,
        "offsets_sha256": hashlib.sha256(index).hexdigest(),
        **changes,
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def test_a_companion() -> None:
    assert parse_companion(companion(), INDEX) == Companion("/data/ü.tar", 10240, 5, None, files=5, samples=2)
    remote = companion(source={**SOURCE, "object_identity": "etag:x"})
    assert parse_companion(memoryview(remote), memoryview(INDEX)).identity == "etag:x"


@pytest.mark.parametrize(
    ("data", "index", "words"),
    [
        (b"", INDEX, "not the JSON"),
        (b"\xff", INDEX, "not the JSON"),
        (b"[" * 99_999, INDEX, "not the JSON"),
        (b"[]", INDEX, "other keys"),
        (companion() + b"\n", INDEX, "spelling"),
        (companion(more=1), INDEX, "other keys"),
        (companion(source=None), INDEX, "other keys"),
        (companion(source={**SOURCE, "path": ""}), INDEX, "values"),
        (companion(source={**SOURCE, "mtime_ns": 1.5}), INDEX, "values"),
        (companion(sample_count=True), INDEX, "values"),
        (companion(sample_count=-2), INDEX, "values"),
        (companion(version=3), INDEX, "version 3"),
        (companion(format="x"), INDEX, "only 2 is known"),
        (companion(), INDEX[:-8] + bytes(8), "hash"),
        (companion(sample_count=3), INDEX, "24 bytes for 3 samples"),
        (companion(source={**SOURCE, "size_bytes": 10241}), INDEX, "ascend to the tar's 10241"),
        (companion(struct.pack("<3Q", 0, 0, 10240)), struct.pack("<3Q", 0, 0, 10240), "ascend"),
    ],
)
def test_refusals(data: bytes, index: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_companion(data, index)


@given(st.integers(0, len(companion()) - 1), st.integers(1, 255), st.booleans())
def test_a_flipped_byte_changes_no_more_than_what_it_says_of_the_source(at: int, change: int, in_index: bool) -> None:
    data, index = bytearray(companion()), bytearray(INDEX)
    target = index if in_index else data
    target[at % len(target)] ^= change
    try:
        found = parse_companion(bytes(data), bytes(index))
    except FormatError as error:
        assert error.offset == 0
        return
    assert not in_index
    assert (found.size, found.samples) == (10240, 2)
