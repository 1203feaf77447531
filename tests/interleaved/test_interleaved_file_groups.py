"""FILE groups: which bytes they mean, and whether these are the ones."""

import hashlib
import zlib

import pytest

from touchfs.core.errors import FormatError
from touchfs.interleaved.layout.file_group import FileReference, verify_checksum

DATA = b"an image"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, (0, None)), ({"size": 5}, (0, 5)), ({"offset": 2, "size": 5}, (2, 5)), ({"offset": 0, "size": 0}, (0, 0))],
)
def test_ranges(fields, expected):
    assert FileReference(uri="a", **fields).range() == expected


@pytest.mark.parametrize(
    "file",
    [
        FileReference(),
        FileReference(offset=1, size=2),
        FileReference(uri="a", offset=1),
        FileReference(uri="a", offset=-1, size=5),
        FileReference(uri="a", size=-5),
    ],
)
def test_groups_that_mean_no_bytes(file):
    with pytest.raises(FormatError, match="a FILE group"):
        file.range()


CHECKSUMS = {
    "MD5": hashlib.md5(DATA).hexdigest(),
    "SHA-256": hashlib.sha256(DATA).hexdigest(),
    "CRC32": f"{zlib.crc32(DATA):08x}",
}


@pytest.mark.parametrize("algorithm", CHECKSUMS)
def test_checksums(algorithm):
    digest = CHECKSUMS[algorithm]
    assert verify_checksum(f"{algorithm}:{digest}", DATA)
    assert verify_checksum(f"{algorithm.lower()}:{digest.upper()}", memoryview(DATA))
    with pytest.raises(FormatError, match=f"the {algorithm} checksum {digest}"):
        verify_checksum(f"{algorithm}:{'0' * len(digest)}", DATA)


@pytest.mark.parametrize("algorithm", ["ETAG", "CRC32C"])
def test_checksums_that_nobody_here_can_compute_are_said_not_to_be_checked(algorithm):
    assert not verify_checksum(f"{algorithm}:anything", DATA)


@pytest.mark.parametrize("text", ["", "MD5", "MD5:", ":00", "SHA-1:00", "x" * 10_000])
def test_what_is_no_checksum(text):
    with pytest.raises(FormatError, match="checksum"):
        verify_checksum(text, DATA)
