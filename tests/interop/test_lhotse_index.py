"""Indexes are what Lhotse itself makes, to the byte, and what it makes is read."""

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from lhotse.index_pack import IndexPack, IndexPackArraySpec, IndexPackCollectionSpec, write_index_pack
from lhotse.indexing import IndexedJsonlReader, IndexedTarReader, create_jsonl_index, create_tar_index
from lhotse.shar.writers.tar import TarWriter

from touchfs.containers.lines import layout as jsonl
from touchfs.containers.tar.layout import members as tar
from touchfs.containers.tar.layout.header import build_header, end_of_archive, padding
from touchfs.core.extent import drive
from touchfs.format.idx import offsets
from touchfs.idxpack import layout as idxpack
from touchfs.idxpack.build import CollectionSpec, build_pack
from touchfs.source.local import LocalFile

METADATA = json.dumps({"storage_type": "shar", "storage_path": "", "storage_key": "", "shape": [3]}).encode()


def write_shar(path: Path, keys: list[str], size: int = 700) -> None:
    with TarWriter(str(path), shard_size=None) as writer:
        for i, key in enumerate(keys):
            writer.write(f"{key}.npy", io.BytesIO(bytes([i % 256]) * (size + i)))
            writer.write(f"{key}.json", io.BytesIO(METADATA), count=False)


def our_tar_index(path: Path) -> bytes:
    source = LocalFile(str(path))
    starts = [member.header_offset for member in tar.members(source.read, source.size)]
    return offsets.build(starts[::2], source.size)


def our_jsonl_index(path: Path, block_size: int = 1000) -> bytes:
    data = path.read_bytes()
    blocks = (data[at : at + block_size] for at in range(0, len(data), block_size))
    return np.concatenate(list(jsonl.line_offsets(blocks))).astype("<u8").tobytes()


KEYS = {
    "plain": [f"cut-{i:04d}" for i in range(25)],
    "none": [],
    "directories": [f"a/b{i}/c.d" for i in range(5)],
    "long": ["x" * 120 + str(i) for i in range(5)],
    "Chinese": [f"录音-{i}" for i in range(5)],
}


@pytest.mark.parametrize("keys", KEYS)
def test_the_index_of_a_tar(tmp_path: Path, keys: str) -> None:
    path = tmp_path / "recording.000000.tar"
    if KEYS[keys]:
        write_shar(path, KEYS[keys])
    else:
        tarfile.open(path, "w").close()
    assert our_tar_index(path) == Path(create_tar_index(path)).read_bytes()
    found = offsets.parse(Path(f"{path}.idx").read_bytes(), path.stat().st_size)
    assert len(found) == len(KEYS[keys]) + 1


def test_the_true_size_where_lhotse_stops_early(tmp_path: Path) -> None:
    """Its scan ends with the first zero block, which here is the last block of what it reads at once."""
    path = tmp_path / "short.tar"
    made = b"".join(
        build_header(name, size) + bytes(size) + padding(size) for name, size in (("a.bin", 8000), ("a.json", 5))
    )
    assert len(made) == 10240 - 512
    path.write_bytes(made + end_of_archive(len(made)))
    theirs = Path(create_tar_index(path)).read_bytes()
    assert np.frombuffer(theirs, "<u8").tolist() == [0, 10240]
    ours = our_tar_index(path)
    assert np.frombuffer(ours, "<u8").tolist() == [0, 20480]
    assert offsets.parse(theirs, 20480).tolist() == [0, 10240], "not refused: it is Lhotse's"
    Path(f"{path}.idx").write_bytes(ours)
    assert len(IndexedTarReader(path)) == 1


def test_our_tar_is_the_one_that_lhotse_writes(tmp_path: Path) -> None:
    path = tmp_path / "shar.tar"
    for keys in KEYS.values():
        if keys:
            write_shar(path, keys)
            made = b""
            for i, key in enumerate(keys):
                for name, data in ((f"{key}.npy", bytes([i % 256]) * (700 + i)), (f"{key}.json", METADATA)):
                    made += build_header(name, len(data)) + data + padding(len(data))
            assert made + end_of_archive(len(made)) == path.read_bytes()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"a": 1}\n' * 1000,
        b'{"a": 1}\r\n\r\n{"b": 2}',
        b"\n\n",
        b'\xef\xbb\xbf{"a": 1}\n',
        b"x" * 5000 + b"\n{}",
    ],
)
def test_the_index_of_jsonl(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cuts.000000.jsonl"
    path.write_bytes(data)
    theirs = Path(create_jsonl_index(path)).read_bytes()
    assert our_jsonl_index(path) == theirs
    assert offsets.parse(theirs, len(data)).tolist() == np.frombuffer(theirs, "<u8").tolist()


def test_lhotse_reads_what_we_index(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"i": i}) + "\n" for i in range(300)))
    Path(f"{path}.idx").write_bytes(our_jsonl_index(path))
    assert [row["i"] for row in IndexedJsonlReader(path)] == list(range(300))


Collection = tuple[str, str, object, tuple[str, ...], bool]


def their_pack(path: Path, collections: list[Collection], *arrays: IndexPackArraySpec) -> bytes:
    write_index_pack(path, [*(IndexPackCollectionSpec(*found) for found in collections), *arrays])
    return path.read_bytes()


@pytest.fixture
def collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Collection]:
    monkeypatch.chdir(tmp_path)
    for name, count in (("a.jsonl", 3), ("b.jsonl", 0), ("ü.jsonl", 40)):
        Path(name).write_text("".join(f'{{"i": {i}}}\n' for i in range(count)))
        create_jsonl_index(name)
    return [
        ("records", "json-lines", "{a,b,a}.jsonl", ("a.jsonl", "b.jsonl", "a.jsonl"), True),
        ("records", "json-lines", {"z": ["ü"], "a": None}, ("ü.jsonl", "a.jsonl"), True),
        ("listed", "tar-members", None, ("a.jsonl", "far.tar"), False),
        ("empty", "tar-members", [1, 2.5, True], (), True),
    ]


def stored(name: str) -> np.ndarray:
    return np.fromfile(f"{name}.idx", "<u8").astype(np.int64)


def test_a_pack_is_the_one_that_lhotse_writes(collections: list[Collection]) -> None:
    specs = [
        CollectionSpec(*found[:4], idxpack.SegmentContent.OFFSETS if found[4] else idxpack.SegmentContent.PATHS)
        for found in collections
    ]
    ours = b"".join(build_pack(specs, {name: stored(name) for name in ("a.jsonl", "b.jsonl", "ü.jsonl")}))
    assert ours == their_pack(Path("x.idxpack"), collections)
    Path("ours.idxpack").write_bytes(ours)
    with IndexPack("ours.idxpack") as pack:
        found = pack.collection(specs[1].key)
        assert len(found) == 43
        location = found.locate(41)
        assert (location.path, location.start, location.end) == ("a.jsonl", *stored("a.jsonl")[1:3].tolist())


def test_packs_of_both_versions_are_read(collections: list[Collection]) -> None:
    np.array([5, 2**32 - 1], "<u4").tofile("route.0")
    np.array([], "<u4").tofile("route.1")
    arrays = IndexPackArraySpec("route", "permutation", 0, ("route.0", "route.1", "route.0"))
    their_pack(Path("2.idxpack"), collections)
    their_pack(Path("3.idxpack"), collections, arrays)
    for name, count in (("2.idxpack", 4), ("3.idxpack", 5)):
        source = LocalFile(name)
        pack = drive(idxpack.scan_pack(source.size), source)
        assert len(pack.collections) == count
        for found, wanted in zip(pack.collections, collections, strict=False):
            assert found.kind == wanted[1]
            assert [pack.paths[segment] for segment in found.segments] == list(wanted[3])
            for segment in found.segments.tolist():
                numbers = drive(idxpack.scan_segment(pack, segment), source).tolist()
                assert numbers == (stored(pack.paths[segment]).tolist() if wanted[4] else [])
    last = pack.collections[-1]
    assert (last.content, last.ends.tolist()) == (idxpack.SegmentContent.ARRAY, [2, 2, 4])
    assert drive(idxpack.scan_segment(pack, int(last.segments[2])), source).tolist() == [5, 2**32 - 1]


def test_the_known_size_of_a_path_alone_is_read(collections: list[Collection]) -> None:
    size = Path("a.jsonl").stat().st_size
    specs = [IndexPackCollectionSpec("r", "k", 0, ("a.jsonl",), offsets_required=False)]
    write_index_pack("sized.idxpack", specs, source_size_overrides={"a.jsonl": size})
    source = LocalFile("sized.idxpack")
    pack = drive(idxpack.scan_pack(source.size), source)
    assert drive(idxpack.scan_segment(pack, 0), source).tolist() == [size]
