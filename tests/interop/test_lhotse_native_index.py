"""Indexes for Lhotse are Lhotse's, to the byte. Where Lhotse's own would be wrong, or are read wrong, touchfs says so.

Each test of the second kind shows first what Lhotse 2.0.0a7 does.
"""

import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from lhotse import CutSet, MonoCut
from lhotse.array import Array
from lhotse.index_pack import IndexPack, index_pack_collection_key, write_index_pack
from lhotse.index_pack import IndexPackCollectionSpec as CollectionSpec
from lhotse.indexing import (
    IndexedJsonlReader,
    IndexedTarReader,
    create_jsonl_index,
    create_shar_index,
    create_tar_index,
)
from lhotse.packed_lazy import LazyPackedManifestIterator
from lhotse.shar.writers.tar import TarWriter

from touchfs.containers.tar.layout.grouping import Dialect
from touchfs.containers.tar.layout.header import build_header, end_of_archive, padding
from touchfs.core.errors import FormatError
from touchfs.idxpack.write import write_pack
from touchfs.peers.judge import IndexState, judge
from touchfs.peers.lists import judge_list
from touchfs.peers.write import write_index

LHOTSE = Dialect.LHOTSE
METADATA = json.dumps(Array(storage_type="shar", storage_path="", storage_key="", shape=[2]).to_dict()).encode()


def write_shar_tar(path, keys, size=700):
    """As SharWriter does; what each holds tells which it is."""
    with TarWriter(str(path), shard_size=None) as writer:
        for i, key in enumerate(keys):
            file = io.BytesIO()
            np.save(file, np.full(size, i, np.uint8))
            writer.write(f"{key}.npy", io.BytesIO(file.getvalue()))
            writer.write(f"{key}.json", io.BytesIO(METADATA), count=False)


def write_tar(path, names):
    """Of empty files, and directories where a name ends in a slash."""
    with tarfile.open(path, "w") as file:
        for name in names:
            member = tarfile.TarInfo(name.rstrip("/"))
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            file.addfile(member)


def read_rows(path):
    return [row["n"] for row in IndexedJsonlReader(path, auto_create_index=False)]


def read_names(path):
    """Of each sample of a tar the name that Lhotse gives it."""
    return [os.fspath(name) for _, name in IndexedTarReader(path, auto_create_index=False)]


def numbers(path):
    return np.fromfile(path, "<u8").tolist()


@pytest.fixture
def rows(here):
    Path("x.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(8)))
    create_jsonl_index("x.jsonl")
    return "x.jsonl"


@pytest.fixture
def pairs(here):
    write_shar_tar("x.tar", [f"cut-{i}" for i in range(6)])
    create_tar_index("x.tar")
    return "x.tar"


def told(data, state=IndexState.STALE):
    found = judge(f"{data}.idx", data)
    assert found.state is state, found
    return found.message


class TestBytes:
    @pytest.mark.parametrize(
        "keys",
        [["a"], [f"cut-{i}" for i in range(40)], ["x" * 120, "y" * 300], ["录音-0", "é"], ["d/a.b", "d/c"], ["a"] * 3],
    )
    def test_tar(self, here, keys):
        write_shar_tar("x.tar", keys)
        theirs = create_tar_index("x.tar").read_bytes()
        assert "for Lhotse" in told("x.tar", IndexState.FITS)
        write_index("x.tar", "x.tar.idx", LHOTSE)
        assert Path("x.tar.idx").read_bytes() == theirs

    @pytest.mark.parametrize(
        "data", [b"", b"{}", b'{"a": 1}\n' * 300_000, b'{"a": 1}\r\n\r\n{"b": 2}', b'\n\n{"a": 1}', b"\xef\xbb\xbf{}\n"]
    )
    def test_jsonl(self, here, data):
        Path("x.jsonl").write_bytes(data)
        theirs = create_jsonl_index("x.jsonl").read_bytes()
        told("x.jsonl", IndexState.FITS)
        write_index("x.jsonl", "x.jsonl.idx", None)
        assert Path("x.jsonl.idx").read_bytes() == theirs

    def test_a_shar_directory(self, here):
        os.mkdir("shar")
        cuts = CutSet.from_cuts(MonoCut(id=f"c{i}", start=0, duration=1, channel=0, custom={"n": i}) for i in range(7))
        cuts.to_shar("shar", fields={"n": "jsonl"}, shard_size=3, compress_jsonl=False, create_index=True)
        write_shar_tar("shar/recording.000000.tar", "ab")
        create_shar_index("shar")
        theirs = {path: path.read_bytes() for path in Path("shar").glob("*.idx")}
        assert len(theirs) == 7
        for path in theirs:
            data = os.fspath(path).removesuffix(".idx")
            write_index(data, os.fspath(path), LHOTSE if data.endswith(".tar") else None)
            assert path.read_bytes() == theirs[path]

    def test_a_pack(self, here):
        for name in ("a.jsonl", "b.jsonl"):
            Path(name).write_text("".join(f'{{"n": "{name}{n}"}}\n' for n in range(4)))
            create_jsonl_index(name)
        write_shar_tar("x.tar", "abc")
        create_tar_index("x.tar")
        spec = CollectionSpec("manifest", "jsonl", ["a.jsonl", "b.jsonl"], ("a.jsonl", "b.jsonl"))
        write_index_pack("theirs.idxpack", [spec, CollectionSpec("tar", "nemo_tar", "x.tar", ("x.tar",))])
        assert write_pack(["a.jsonl", "b.jsonl", "x.tar"], "ours.idxpack") == 11
        assert Path("ours.idxpack").read_bytes() == Path("theirs.idxpack").read_bytes()
        rows = LazyPackedManifestIterator("ours.idxpack", spec.key, decode=lambda row: row["n"])
        assert list(rows) == [f"{name}{n}" for name in ("a.jsonl", "b.jsonl") for n in range(4)]

    def test_a_pack_of_a_pattern(self, here):
        for number in range(3):
            Path(f"a.{number}.jsonl").write_text('{"n": 1}\n')
        write_pack(["a.{0..2}.jsonl"], "x.idxpack")
        with IndexPack("x.idxpack") as pack:
            assert len(pack.collection(index_pack_collection_key("manifest", "jsonl", "a.{0..2}.jsonl"))) == 3


class TestStale:
    """Lhotse looks at the data's size and time never, and at the numbers when it uses them."""

    def test_data_that_was_rewritten_longer(self, rows, pairs):
        Path(rows).write_text("".join(f'{{"n": {n}}}\n' for n in range(12)))
        assert read_rows(rows) == list(range(8))  # of 12
        assert told(rows) == "8 samples in it, and the file goes on at byte 72"
        write_shar_tar(pairs, [f"cut-{i}" for i in range(20)])
        assert len(read_names(pairs)) == 6  # of 20
        assert "6 samples in it, and the tar goes on" in told(pairs)

    def test_data_that_was_rewritten_with_the_same_size(self, rows):
        size = os.path.getsize(rows)
        Path(rows).write_text("".join(f'{{"n": {n}, "x": "{"." * 18}"}}\n' for n in range(2)))
        assert os.path.getsize(rows) == size
        with pytest.raises(ValueError):
            read_rows(rows)
        assert "sample 1 is at byte 9 in it" in told(rows)
        Path(rows).write_text("".join(f'{{"n": {n}}}\n' for n in range(7, -1, -1)))
        assert read_rows(rows) == list(range(7, -1, -1))
        told(rows, IndexState.FITS)  # all lines are where they were: the index is right

    def test_data_that_was_cut(self, rows):
        os.truncate(rows, 36)
        assert len(IndexedJsonlReader(rows)) == 8  # of 4
        assert "past the end of a file of 36 bytes: the data was cut" in told(rows)

    def test_an_index_that_was_cut(self, rows, pairs):
        os.truncate("x.jsonl.idx", 40)
        assert read_rows(rows) == list(range(4))  # of 8
        assert told(rows) == "4 samples in it, and the file goes on at byte 36"
        os.truncate("x.tar.idx", 24)
        assert len(read_names(pairs)) == 2  # of 6
        assert "2 samples in it, and the tar goes on" in told(pairs)

    def test_an_index_in_disorder(self, rows):
        good = numbers("x.jsonl.idx")
        np.array([good[1], good[0], *good[2:]], "<u8").tofile("x.jsonl.idx")
        with pytest.raises(ValueError):
            IndexedJsonlReader(rows)[0]
        assert IndexedJsonlReader(rows)[7]["n"] == 7  # so that nobody may notice
        assert told(rows, IndexState.DAMAGED) == "offset 0 comes after 9 (at byte 8)"
        np.array(good, ">u8").tofile("x.jsonl.idx")
        with pytest.raises(OSError):
            IndexedJsonlReader(rows)[1]
        assert "big-endian" in told(rows, IndexState.DAMAGED)

    def test_the_source_of_a_pack(self, rows):
        key = CollectionSpec("manifest", "jsonl", rows, (rows,))
        write_index_pack("x.idxpack", [key])
        Path(rows).write_text("".join(f'{{"n": {n}}}\n' for n in range(100, 110)))
        read = LazyPackedManifestIterator("x.idxpack", key.key, decode=lambda row: row)
        with pytest.raises(ValueError):
            list(read)  # only because lines are longer now
        (found,) = judge_list("x.idxpack")
        assert (found.state, "110 bytes, and 72 when" in found.message) == (IndexState.STALE, True)

    def test_a_flipped_bit_in_a_pack(self, rows):
        key = CollectionSpec("manifest", "jsonl", rows, (rows,))
        write_index_pack("x.idxpack", [key])
        data = bytearray(Path("x.idxpack").read_bytes())
        data[-16] ^= 1  # the last line's offset
        Path("x.idxpack").write_bytes(data)
        IndexPack("x.idxpack").close()
        (found,) = judge_list("x.idxpack")
        assert (found.state, "checksum" in found.message) == (IndexState.DAMAGED, True)


class TestDamagedTars:
    def test_a_wrong_checksum_ends_lhotses_index(self, pairs):
        data = bytearray(Path(pairs).read_bytes())
        place = numbers("x.tar.idx")[2]
        data[place] ^= 1
        Path(pairs).write_bytes(data)
        create_tar_index(pairs)
        assert len(read_names(pairs)) == 2  # of 6
        with pytest.raises(FormatError, match="checksum") as raised:
            judge("x.tar.idx", pairs)
        assert raised.value.offset == place
        with pytest.raises(FormatError, match="checksum") as raised:
            write_index(pairs, "x.tar.idx", LHOTSE)
        assert raised.value.offset == place

    def test_a_tar_cut_between_members(self, pairs):
        """Nothing says that there was more, but that it has no end."""
        os.truncate(pairs, numbers("x.tar.idx")[3])
        create_tar_index(pairs)
        assert len(read_names(pairs)) == 3
        assert write_index(pairs, "x.tar.idx", LHOTSE).remark == "it has no end mark, as if it had been cut"

    def test_a_second_archive_behind_the_first(self, pairs):
        first = Path(pairs).read_bytes()
        write_shar_tar(pairs, ["more-0", "more-1"])
        Path(pairs).write_bytes(first + Path(pairs).read_bytes())
        create_tar_index(pairs)
        assert len(read_names(pairs)) == 6  # of 8
        assert "6 samples in it, and the tar goes on with another" in told(pairs)
        write_index(pairs, "x.tar.idx", LHOTSE)
        assert read_names(pairs)[5:] == ["cut-5.npy", "more-0.npy", "more-1.npy"]


class TestPairs:
    @pytest.mark.parametrize(
        ("names", "words"),
        [
            (["d/", "d/a.nodata", "d/a.nometa", "d/b.nodata", "d/b.nometa", "d/"], "'d' is not a file"),
            (["a.nodata", "a.nometa", "a.txt", "b.nodata", "b.nometa", "b.txt"], "'a.txt' is a third member"),
            (["a.nodata", "a.nometa", "README", "b.nodata", "b.nometa", "c.nodata"], "'b.nodata' is not the partner"),
        ],
    )
    def test_a_member_too_many_shifts_all_pairs(self, here, names, words):
        write_tar("x.tar", names)
        create_tar_index("x.tar")
        assert len(numbers("x.tar.idx")) == len(names) // 2 + 1
        assert "for Lhotse" not in judge("x.tar.idx", "x.tar").message
        with pytest.raises(FormatError, match=words):
            write_index("x.tar", "x.tar.idx", LHOTSE)

    @pytest.mark.parametrize("key", ["x" * 120, "录音"])
    def test_names_with_a_header_of_their_own(self, here, key):
        """The index is right, its reader is not: it takes the first header's data for the sample's."""
        write_shar_tar("x.tar", [f"{key}0", f"{key}1"])
        create_tar_index("x.tar")
        with pytest.raises(UnicodeDecodeError):
            read_names("x.tar")
        assert judge("x.tar.idx", "x.tar").samples == 2


class TestLines:
    def test_a_blank_line_is_a_sample_that_cannot_be_read(self, here):
        Path("x.jsonl").write_bytes(b'{"n": 0}\n\n{"n": 1}\n')
        assert write_index("x.jsonl", "x.jsonl.idx", None).remark.startswith("line 2, at byte 9, is blank")
        assert len(IndexedJsonlReader("x.jsonl")) == 3
        with pytest.raises(ValueError):
            read_rows("x.jsonl")
        np.array([0, 10, 19], "<u8").tofile("x.jsonl.idx")  # as Energon leaves it out
        assert read_rows("x.jsonl") == [0, 1]
        assert told("x.jsonl", IndexState.FITS) == "2 samples, a line each but for blank ones"

    def test_a_byte_order_mark(self, here):
        Path("x.jsonl").write_bytes(b'\xef\xbb\xbf{"n": 0}\n')
        assert "byte order mark" in write_index("x.jsonl", "x.jsonl.idx", None).remark
        with pytest.raises(ValueError):
            read_rows("x.jsonl")

    def test_json_over_several_lines(self, here):
        Path("x.json").write_text(json.dumps([{"n": 0}], indent=1))
        create_jsonl_index("x.json")
        assert len(IndexedJsonlReader("x.json")) == 5
        with pytest.raises(FormatError, match="one value over several lines"):
            write_index("x.json", "x.json.idx", None)


def test_the_size_that_lhotses_packer_refuses(here):
    """Its own index of its own tar, where the end mark straddles what it reads at once."""
    made = b""
    for name, data in (("a.nodata", bytes(8000)), ("a.nometa", b"12345")):
        made += build_header(name, len(data)) + data + padding(len(data))
    Path("x.tar").write_bytes(made + end_of_archive(len(made)))
    spec = CollectionSpec("tar", "tar", "x.tar", ("x.tar",))
    create_tar_index("x.tar")
    assert numbers("x.tar.idx") == [0, 10240]
    with pytest.raises(ValueError, match="Invalid sentinel"):
        write_index_pack("x.idxpack", [spec])
    assert "for Lhotse" in told("x.tar", IndexState.FITS)
    write_index("x.tar", "x.tar.idx", LHOTSE)
    assert numbers("x.tar.idx") == [0, 20480]
    write_index_pack("x.idxpack", [spec])
    assert write_pack(["x.tar"], "y.idxpack", LHOTSE) == 1
    assert Path("y.idxpack").read_bytes() == Path("x.idxpack").read_bytes()
