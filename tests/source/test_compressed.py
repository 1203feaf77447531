"""Compressed streams: whatever was compressed comes out, in however many members, or an error says where it ends."""

import bz2
import gzip
import lzma
import os
import random
import subprocess
import sys
from contextlib import closing, nullcontext, suppress
from pathlib import Path

import pytest
import zstandard
from conformance import check_source
from hypothesis import given, settings
from hypothesis import strategies as st

from touchfs.core.errors import ChangedError, FormatError, MissingExtraError, SourceError
from touchfs.source import decompressed as compressed
from touchfs.source.decompressed import STEP_SIZE, DecompressedFile, codec_of, decompress, decompressed, find
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.local import LocalFile
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, SIZE_VARIABLE

COMPRESS = {
    ".gz": gzip.compress,
    ".tgz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}
# Those whose programs ignore other data after the last member.
IGNORING = {".gz": "gzip", ".tgz": "gzip", ".bz2": "bzip2"}


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "scratch"))
    return tmp_path / "scratch"


def run(suffix: str, data: bytes, step: int = STEP_SIZE) -> bytes:
    return b"".join(decompress(codec_of("x" + suffix), (data[i : i + step] for i in range(0, len(data), step))))


def fingerprint_of(path: Path) -> Fingerprint:
    return Fingerprint.of(path.stat())


def text(seed: int, size: int) -> bytes:
    return b"".join(b"line %d\n" % random.Random(seed).randrange(10**6) for _ in range(size // 8))[:size]


@pytest.mark.parametrize("suffix", COMPRESS)
@settings(max_examples=settings().max_examples // 2)
@given(
    parts=st.lists(st.binary(max_size=300) | st.integers(0, 50_000).map(lambda n: text(n, n)), min_size=1, max_size=4),
    step=st.integers(1, STEP_SIZE),
    padding=st.integers(0, 9),
)
def test_round_trip(suffix: str, parts: list[bytes], step: int, padding: int) -> None:
    """Several members are one file, and zeros at its end are none."""
    data = b"".join(map(COMPRESS[suffix], parts)) + bytes(padding)
    assert run(suffix, data, step) == b"".join(parts)


@pytest.mark.parametrize("suffix", COMPRESS)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_what_is_cut_off_or_damaged_is_an_error(suffix: str, data: st.DataObject) -> None:
    plain = text(1, 3000)
    whole = COMPRESS[suffix](plain) * 2
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda cut: cut != len(whole) // 2), "cut")
    with pytest.raises(FormatError) as caught:
        run(suffix, whole[:cut], 64)
    assert caught.value.offset is not None and caught.value.offset <= cut
    rest = data.draw(st.binary(min_size=1).filter(lambda rest: rest[0] not in b"\0\x1fB"))
    with nullcontext() if suffix in IGNORING else pytest.raises(FormatError):
        assert run(suffix, whole + rest, 64) == plain * 2
    spoilt = bytearray(whole)
    spoilt[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(FormatError):
        found = run(suffix, bytes(spoilt), 64)
        is_ignored = suffix in IGNORING and found == plain  # the second member has another magic
        assert found == plain * 2 or is_ignored or suffix == ".zst"  # which has no checksum unless asked


@pytest.mark.parametrize("suffix", COMPRESS)
def test_data_after_the_last_member_is_what_it_is_to_its_program(
    tmp_path: Path, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(COMPRESS[suffix](b"one") + b"\xff" * 5000)
    program = {".xz": "xz", ".zst": "zstd", **IGNORING}[suffix]
    theirs = subprocess.run([program, "-dc", path], capture_output=True, check=False)
    assert (b"ignored" in theirs.stderr) == (suffix in IGNORING)
    if suffix not in IGNORING:
        with pytest.raises(FormatError):
            decompressed(str(path), fingerprint_of(path))
        return
    with closing(decompressed(str(path), fingerprint_of(path))) as form:
        assert Path(form.path).read_bytes() == theirs.stdout == b"one"
    assert f"x{suffix}: 5,000 bytes after its {program} data are ignored" in caplog.text


def test_frames_that_are_to_be_skipped() -> None:
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    assert run(".zst", skipped + zstandard.compress(b"one") + skipped + zstandard.compress(b"two")) == b"onetwo"


@pytest.mark.parametrize("suffix", COMPRESS)
def test_no_data_at_all(suffix: str) -> None:
    for data in (b"", bytes(1000)):
        with pytest.raises(FormatError, match="is empty"):
            run(suffix, data)
    assert run(suffix, COMPRESS[suffix](b"")) == b""


@pytest.mark.parametrize(
    ("suffix", "parts"), [(".gz", 1), (".gz", 2), (".xz", 1), (".xz", 2), (".zst", 1), (".bz2", 1)]
)
def test_sizes_that_are_told(tmp_path: Path, suffix: str, parts: int) -> None:
    data = text(3, 40_000)
    path = tmp_path / f"x{suffix}"
    path.write_bytes(COMPRESS[suffix](data) * parts)
    told = codec_of(str(path)).size_at_least(LocalFile(str(path)))
    assert told == (0 if suffix == ".bz2" else 40_000)


@pytest.mark.parametrize("suffix", COMPRESS)
@settings(max_examples=25)
@given(data=st.binary(max_size=100))
def test_sizes_told_by_garbage_do_no_harm(suffix: str, tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / f"garbage{suffix}"
    for garbage in (data, data + b"YZ", data[:4] + bytes(4) + data[8:10] + b"YZ", b"\x28\xb5\x2f\xfd" + data):
        path.write_bytes(garbage)
        assert 0 <= codec_of(str(path)).size_at_least(LocalFile(str(path))) < 2**64


def test_an_index_of_many_blocks(tmp_path: Path) -> None:
    """As `xz --block-size` writes it: the index alone tells how much it is."""
    path = tmp_path / "x"
    path.write_bytes(text(4, 100_000))
    subprocess.run(["xz", "-k", "--block-size=10000", path], check=True)
    assert codec_of("x.xz").size_at_least(LocalFile(f"{path}.xz")) == 100_000


def test_zstandard_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'touchfs-shards\[zstd\]'") as caught:
        codec_of("/data/x.tar.zst")
    assert caught.value.path == "/data/x.tar.zst"
    assert codec_of("x.gz").name == "gzip"


# Files


def test_the_decompressed_form_is_a_source(tmp_path: Path) -> None:
    made = iter(range(100))

    def make(data: bytes) -> DecompressedFile:
        path = tmp_path / f"{next(made)}.gz"
        path.write_bytes(gzip.compress(data))
        held.append(decompressed(str(path), fingerprint_of(path)))
        return DecompressedFile(str(path), fingerprint_of(path))

    held: list[object] = []
    check_source(make)


def test_progress_is_in_bytes_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(random.Random(0).randbytes(3_000_000)))
    told: list[tuple[int, int]] = []
    decompressed(str(path), fingerprint_of(path), lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == [0, 1 << 20, 2 << 20, path.stat().st_size]
    assert {total for _, total in told} == {path.stat().st_size}
    told.clear()
    decompressed(str(path), fingerprint_of(path), lambda done, total: told.append((done, total)))
    assert told == [], "it is there already"


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstandard.compress])
def test_a_known_size_is_refused_before_a_byte_is_written(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, compress: object
) -> None:
    suffix = {gzip.compress: ".gz", lzma.compress: ".xz", zstandard.compress: ".zst"}[compress]  # type: ignore[index]
    path = tmp_path / f"x{suffix}"
    path.write_bytes(compress(bytes(10**7)))  # type: ignore[operator]
    monkeypatch.setenv(SIZE_VARIABLE, "9.9M")
    told: list[int] = []
    with pytest.raises(SourceError, match=r"takes 10,000,000 bytes or more .*--scratch-size") as caught:
        decompressed(str(path), fingerprint_of(path), lambda done, total: told.append(done))
    assert caught.value.path == str(path)
    assert told == []
    assert [name for name in os.listdir(scratch) if name.endswith(".scratch")] == []


@pytest.mark.parametrize("suffix", [".bz2", ".gz"])
def test_a_bomb_is_stopped_at_the_limit(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Also one that lies about its size: an empty member follows."""
    path = tmp_path / f"x{suffix}"
    path.write_bytes(COMPRESS[suffix](bytes(8_000_000)) + COMPRESS[suffix](b""))
    assert path.stat().st_size < 50_000
    monkeypatch.setenv(SIZE_VARIABLE, "4M")
    with pytest.raises(SourceError, match="4,000,000"):
        decompressed(str(path), fingerprint_of(path))
    assert [name for name in os.listdir(scratch) if name.endswith(".scratch")] == []


def test_a_file_that_changes_while_it_is_decompressed(tmp_path: Path, scratch: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(random.Random(0).randbytes(3_000_000)))

    def change(done: int, total: int) -> None:
        if done == 1 << 20:
            os.utime(path, ns=(0, 0))

    with pytest.raises(ChangedError):
        decompressed(str(path), fingerprint_of(path), change)
    assert find(str(path), fingerprint_of(path)) is None
    assert [name for name in os.listdir(scratch) if name.endswith(".scratch")] == []


def test_a_file_that_has_changed_since_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"old"))
    identity = fingerprint_of(path)
    held = decompressed(str(path), identity)
    source = DecompressedFile(str(path), identity)
    source.open()
    assert source.read(0, 3) == b"old"
    path.write_bytes(gzip.compress(b"new"))
    os.utime(path, ns=(0, 0))
    for opened in (source, DecompressedFile(str(path), identity)):
        with pytest.raises(ChangedError, match="was replaced or changed") as caught:
            opened.open()
        assert caught.value.path == str(path)
    path.unlink()
    with pytest.raises(ChangedError, match="was removed"):
        source.open()
    del held


def test_a_form_that_was_evicted(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"data"))
    os.unlink(decompressed(str(path), fingerprint_of(path)).path)
    source = DecompressedFile(str(path), fingerprint_of(path))
    with pytest.raises(SourceError, match="was evicted from the scratch store: `touchfs reload`") as caught:
        source.open()
    assert caught.value.path == str(path)
    held = decompressed(str(path), fingerprint_of(path))
    source.open()
    assert source.read(0, 4) == b"data"
    held.close()


def test_two_paths_to_a_file_have_one_form(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"data"))
    (tmp_path / "link.gz").symlink_to(path)
    one = compressed.decompressed(str(path), fingerprint_of(path))
    assert compressed.decompressed(str(tmp_path / "link.gz"), fingerprint_of(path)).path == one.path
