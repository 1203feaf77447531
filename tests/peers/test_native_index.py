"""Indexes of other tools: what is written is right, and what is wrong with one that is there is said."""

import gzip
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from touchfs.containers.tar.layout.grouping import Dialect
from touchfs.containers.tar.layout.header import build_header, end_of_archive, padding
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError, UsageError
from touchfs.format.idx.wds_v2 import parse_companion
from touchfs.idxpack.build import CollectionSpec, build_pack
from touchfs.idxpack.layout import SegmentContent
from touchfs.idxpack.write import write_pack
from touchfs.peers.judge import IndexState, judge
from touchfs.peers.lists import is_list, judge_list
from touchfs.peers.write import index_path, write_index

LHOTSE, ENERGON, NEMO, WDS_V2 = Dialect.LHOTSE, Dialect.ENERGON, Dialect.NEMO, Dialect.WDS_V2
THREE = [name for key in ("a", "b", "c") for name in (f"{key}.flac", f"{key}.json", f"{key}.txt")]
PAIRS = [name for key in ("a", "b", "c", "d") for name in (f"{key}.wav", f"{key}.json")]


def member(name, size=10):
    return build_header(name, size) + b"x" * size + padding(size)


def archive(names, size=10):
    made = b"".join(member(name, size) for name in names)
    return made + end_of_archive(len(made))


def stored(path):
    return np.fromfile(path, "<u8").tolist()


def save(path, numbers, kind="<u8"):
    np.array(numbers, np.uint64).astype(kind).tofile(path)


@pytest.fixture
def pairs(here):
    Path("x.tar").write_bytes(archive(PAIRS))
    write_index("x.tar", "x.tar.idx", LHOTSE)
    return "x.tar"


@pytest.fixture
def lines(here):
    Path("x.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(8)))
    write_index("x.jsonl", "x.jsonl.idx", None)
    return "x.jsonl"


def verdict(data, state, *words):
    found = judge(f"{data}.idx", data)
    assert found.state is state, found
    assert all(word in found.message for word in words), found
    return found


class TestWriting:
    @pytest.mark.parametrize(
        ("dialect", "names", "numbers"),
        [
            (LHOTSE, PAIRS, [0, 2048, 4096, 6144, 10240]),
            (LHOTSE, [], [10240]),
            (ENERGON, THREE, [0, 3072, 6144, 9216]),
            (ENERGON, ["a.txt", "dir/a.txt", "dir/a.b.txt", "README", "__x__/a.txt"], [0, 1024, 5120]),
            (ENERGON, [], [0]),
            (NEMO, THREE, [0, 3072, 6144, 10240]),
            (NEMO, ["x/a.b.flac", "y/a.b.json", "a.c.flac"], [0, 2048, 10240]),
            (WDS_V2, THREE, [0, 3072, 6144, 10240]),
            (WDS_V2, ["d/a.json", "d/a.0.wav", "d/a.1.wav", "b.wav", "b.json"], [0, 3072, 10240]),
        ],
    )
    def test_tars(self, here, dialect, names, numbers):
        Path("x.tar").write_bytes(archive(names))
        index = index_path("x.tar", dialect)
        assert write_index("x.tar", index, dialect).samples == len(numbers) - 1
        assert stored(index) == numbers
        found = judge(index, "x.tar")
        assert (found.state, found.samples) == (IndexState.FITS, len(numbers) - 1)
        assert dialect in found.readers

    @pytest.mark.parametrize(
        ("dialect", "names", "words", "offset"),
        [
            (LHOTSE, THREE, "'a.txt' is a third member", 2048),
            (LHOTSE, [*PAIRS, "e.wav"], "'e.wav', the last member, has no partner", 8192),
            (LHOTSE, ["a.json", "a.wav", "a.cls", "a.txt"], "'a.cls' is a third member", 2048),
            (LHOTSE, ["a.b/c.wav", "a.d/c.json"], "'a.d/c.json' is not the partner", 1024),
            (LHOTSE, [".a", ".b"], "'.b' is not the partner", 1024),
            (WDS_V2, ["a.wav", "a.json", "a.wav"], "'a.wav' occurs twice", 2048),
            (WDS_V2, ["a.wav", "a.json", "b.wav", "b.json", "a.txt"], "the key of an earlier sample", 4096),
            (WDS_V2, ["a.wav", "a.json", "b.wav"], "'b' has 0 .json and 1 others", 2048),
            (WDS_V2, ["a.json", "b.wav", "b.json"], "'a' has 1 .json and 0 others", 0),
            (WDS_V2, ["a.wav", "a.json", "README"], "'README' is not a valid name", 2048),
            (WDS_V2, ["./a.wav", "./a.json"], "'./a.wav' is not a valid name", 0),
        ],
    )
    def test_tars_that_have_no_right_index(self, here, dialect, names, words, offset):
        Path("x.tar").write_bytes(archive(names))
        with pytest.raises(FormatError, match=words) as raised:
            write_index("x.tar", "x.tar.idx", dialect)
        assert (raised.value.path, raised.value.offset) == ("x.tar", offset)
        assert os.listdir() == ["x.tar"]

    def test_the_same_id_twice_is_two_pairs(self, here):
        Path("x.tar").write_bytes(archive(["a.wav", "a.json"] * 3))
        assert write_index("x.tar", "x.tar.idx", LHOTSE).samples == 3

    def test_a_directory_is_no_part_of_a_pair(self, here):
        with tarfile.open("x.tar", "w") as file:
            directory = tarfile.TarInfo("d")
            directory.type = tarfile.DIRTYPE
            file.addfile(directory)
            for name in ("d/a.wav", "d/a.json"):
                file.addfile(tarfile.TarInfo(name), io.BytesIO())
        with pytest.raises(FormatError, match="'d' is not a file"):
            write_index("x.tar", "x.tar.idx", LHOTSE)
        write_index("x.tar", "x.tar.idx", ENERGON)
        assert stored("x.tar.idx") == [512, 1536]

    @pytest.mark.parametrize(
        ("damage", "offset"),
        [
            (lambda data: data[:2148] + b"!" + data[2149:], 2048),  # in a header: its checksum
            (lambda data: data[:2565], 2048),  # in a member
            (lambda data: data[:2048] + b"garbage" * 200, 2048),
            (lambda data: data + b"garbage" * 200, 10240),
        ],
    )
    def test_damage_is_told_with_its_offset_and_nothing_is_written(self, here, damage, offset):
        Path("x.tar").write_bytes(damage(archive(PAIRS)))
        for dialect in (LHOTSE, ENERGON, NEMO):
            with pytest.raises(FormatError) as raised:
                write_index("x.tar", "x.tar.idx", dialect)
            assert (raised.value.path, raised.value.offset) == ("x.tar", offset)
        assert os.listdir() == ["x.tar"]

    def test_a_tar_that_may_be_cut_between_members_is_remarked(self, here):
        for size, words in ((4096, "no end mark"), (10240, ""), (9216, "")):
            Path("x.tar").write_bytes(archive(PAIRS)[:size])
            assert words in write_index("x.tar", "x.tar.idx", LHOTSE).remark

    def test_archives_one_after_the_other(self, here):
        Path("x.tar").write_bytes(archive(PAIRS[:4]) + archive(PAIRS[4:]))
        write_index("x.tar", "x.tar.idx", LHOTSE)
        assert stored("x.tar.idx") == [0, 2048, 10240, 12288, 20480]

    @pytest.mark.parametrize("name", ["x" * 120, "录音", "é/ü.b"])
    def test_the_header_before_a_header_counts(self, here, name):
        Path("x.tar").write_bytes(archive([f"{name}.wav", f"{name}.json", "b.wav", "b.json"]))
        write_index("x.tar", "x.tar.idx", LHOTSE)
        assert stored("x.tar.idx") == [0, 4096, 10240]

    def test_lines(self, here):
        Path("x.jsonl").write_bytes(b'{"a": 1}\r\n{}\n{"b": 2}')
        assert write_index("x.jsonl", "x.jsonl.idx", None).remark == ""
        assert stored("x.jsonl.idx") == [0, 10, 13, 21]
        Path("x.jsonl").write_bytes(b"")
        assert write_index("x.jsonl", "x.jsonl.idx", None).samples == 0
        assert stored("x.jsonl.idx") == [0]

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b'{"a": 1}\n{"b": 2}\n\n{"c": 3}\n', "line 3, at byte 18, "),
            (b'\n{"b": 2}\n', "line 1, at byte 0, "),
            (b'{"a": 1}\r\n\r\n', "line 2, at byte 10, "),
            (b"{}\n1", "line 2, at byte 3, "),
            (b"\xef\xbb\xbf{}\n", "byte order mark"),
            (b'{"a": 1}\n{}', ""),
            (b"{}\n" * 500_000 + b"\n{}\n", "line 500001, at byte 1500000, "),
        ],
    )
    def test_what_readers_fail_on_is_remarked(self, here, data, words):
        Path("x.jsonl").write_bytes(data)
        remark = write_index("x.jsonl", "x.jsonl.idx", None).remark
        assert words in remark and bool(words) == bool(remark)

    def test_what_is_no_jsonl(self, here):
        Path("pretty.json").write_text(json.dumps([{"a": 1}], indent=2))
        Path("x.jsonl").write_bytes(archive(PAIRS))
        for name, words in (("pretty.json", "one value over several lines"), ("x.jsonl", "is a tar")):
            with pytest.raises(FormatError, match=words):
                write_index(name, f"{name}.idx", None)
        Path("x.tar").write_text('{"a": 1}\n' * 100)
        with pytest.raises(FormatError, match="not a tar header"):
            write_index("x.tar", "x.tar.idx", LHOTSE)
        with pytest.raises(UsageError, match="is a directory"):
            write_index(str(here), "x.idx", None)
        with pytest.raises(NotFoundError):
            write_index("nosuch", "x.idx", None)
        with pytest.raises(UsageError, match="is not a regular file"):
            write_index("/dev/null", "x.idx", None)
        assert not list(here.glob("*.idx"))

    @pytest.mark.parametrize("name", ["x.jsonl.gz", "x.tar.gz", "x.tar"])
    def test_what_is_compressed(self, here, name):
        Path(name).write_bytes(gzip.compress(archive(PAIRS)))
        with pytest.raises(FormatError, match="`gunzip` it first"):
            write_index(name, f"{name}.idx", LHOTSE if ".tar" in name else None)
        Path("y.jsonl.zst").write_bytes(b"")
        with pytest.raises(FormatError, match="`unzstd` it first"):
            write_index("y.jsonl.zst", "y.idx", None)

    def test_data_that_changes_meanwhile_gets_no_index(self, here, monkeypatch):
        Path("x.tar").write_bytes(archive(PAIRS * 3000))
        read = os.pread

        def changing(*arguments):
            os.utime("x.tar", ns=(1, 1))
            return read(*arguments)

        monkeypatch.setattr(os, "pread", changing)
        with pytest.raises(TouchfsError, match="changed"):
            write_index("x.tar", "x.tar.idx", LHOTSE)
        assert os.listdir() == ["x.tar"]

    def test_the_companion(self, here):
        Path("x.tar").write_bytes(archive(THREE))
        write_index("x.tar", "y.wds-v2.idx", WDS_V2)
        found = parse_companion(Path("y.wds-v2.idx.meta.json").read_bytes(), Path("y.wds-v2.idx").read_bytes())
        assert (found.path, found.size, found.files, found.samples) == ("x.tar", 10240, 9, 3)
        assert (found.mtime_ns, found.identity) == (Path("x.tar").stat().st_mtime_ns, None)

    @pytest.mark.soak
    def test_memory_does_not_grow_with_the_members(self, here):
        """A list of the offsets alone would be more than what it may take."""
        count = 400_000
        with open("x.tar", "wb") as file:
            block = member("a.wav", 0) + member("a.json", 0)
            for _ in range(count // 20_000):
                file.write(block * 10_000)
        code = """
import re
from pathlib import Path
from touchfs.containers.tar.layout.grouping import Dialect
from touchfs.peers.write import write_index
def peak():  # ru_maxrss begins with that of the parent
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
assert write_index("x.tar", "x.tar.idx", Dialect.LHOTSE).samples == 200_000
print(peak() - before)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert int(done.stdout) < 4096  # KiB
        assert Path("x.tar.idx").stat().st_size == 8 * (count // 2 + 1)

    def test_killed_it_leaves_the_old_index_or_the_new(self, here):
        Path("x.jsonl").write_text("{}\n" * 5_000_000)
        Path("x.jsonl.idx").write_bytes(b"old")
        code = "from touchfs.peers.write import write_index; write_index('x.jsonl', 'x.jsonl.idx', None)"
        process = subprocess.Popen([sys.executable, "-c", code])

        def writes() -> bool:
            with suppress(FileNotFoundError):  # it has its name
                return any(part.stat().st_size for part in here.glob(".touchfs-tmp-*"))
            return False

        wait_until(lambda: process.poll() is not None or writes())
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert Path("x.jsonl.idx").read_bytes() == b"old" or verdict("x.jsonl", IndexState.FITS)


class TestJudging:
    def test_none(self, pairs):
        os.unlink("x.tar.idx")
        verdict(pairs, IndexState.MISSING, "no index of x.tar")

    def test_whose_it_is(self, here):
        """The same name and other meanings, which the tar tells apart."""
        Path("x.tar").write_bytes(archive(PAIRS))
        Path("y.tar").write_bytes(archive(THREE))
        offsets = range(0, 10 * 1024, 1024)
        for data, numbers, readers in [
            ("x.tar", [0, 2048, 4096, 6144, 10240], {LHOTSE, ENERGON, NEMO}),
            ("x.tar", [0, 2048, 4096, 6144, 8192], {LHOTSE, ENERGON, NEMO}),
            ("x.tar", [0, 2048, 4096, 6144, 9728], {LHOTSE, ENERGON, NEMO}),
            ("x.tar", [0, 2048, 4096, 6144], {NEMO}),
            ("x.tar", [0, 2048, 4096, 6144, 8192, 10240], {NEMO}),
            ("x.tar", [*offsets[:8], 10240], {Dialect.MEMBERS}),
            ("y.tar", [0, 3072, 6144, 10240], {ENERGON, NEMO}),
            ("y.tar", [0, 3072, 6144], {NEMO}),
        ]:
            save(f"{data}.idx", numbers)
            assert verdict(data, IndexState.FITS).readers == readers

    def test_keys_and_stems_that_differ(self, here):
        Path("x.tar").write_bytes(archive(["a.b.flac", "a.c.flac", "d.flac"]))
        for dialect, numbers in ((ENERGON, [0, 2048, 3072]), (NEMO, [0, 1024, 2048, 10240])):
            write_index("x.tar", "x.tar.idx", dialect)
            assert stored("x.tar.idx") == numbers
            assert dialect in verdict("x.tar", IndexState.FITS).readers

    def test_data_rewritten_longer(self, pairs, lines):
        Path(pairs).write_bytes(archive([*PAIRS, "e.wav", "e.json"]))
        verdict(pairs, IndexState.STALE, "4 samples in it, and the tar goes on with another at byte 8192")
        with open(lines, "a") as file:
            file.write('{"n": 8}\n')
        verdict(lines, IndexState.STALE, "8 samples in it, and the file goes on at byte 72")

    def test_data_rewritten_with_the_same_size(self, pairs, lines):
        """Only what moves a sample makes an index wrong."""
        made = b"".join([member("a.wav", 600), member("a.json", 0), *map(member, PAIRS[2:])])
        Path(pairs).write_bytes(made + end_of_archive(len(made)))
        assert verdict(pairs, IndexState.FITS).samples == 4
        made = b"".join([member("a.wav", 600), *map(member, PAIRS[1:7]), member("d.json", 0)])
        Path(pairs).write_bytes(made + end_of_archive(len(made)))
        verdict(pairs, IndexState.STALE, "sample 1 is at byte 2048 in it, and in the tar at byte 2560")
        size = os.path.getsize(lines)
        Path(lines).write_text('{"longer": 0}\n'.ljust(size - 1)[: size - 1] + "\n")
        assert os.path.getsize(lines) == size
        verdict(lines, IndexState.STALE, "sample 1 is at byte 9 in it")

    def test_data_cut(self, pairs, lines):
        os.truncate(lines, 36)
        verdict(lines, IndexState.STALE, "is past the end of a file of 36 bytes: the data was cut")
        os.truncate(pairs, 4096)
        verdict(pairs, IndexState.STALE, "is past the end of a file of 4096 bytes: the data was cut")
        Path(pairs).write_bytes(archive(PAIRS)[:4610])
        save("x.tar.idx", [0, 2048, 4096, 4610])
        with pytest.raises(FormatError, match="cut short") as raised:
            judge("x.tar.idx", pairs)
        assert (raised.value.path, raised.value.offset) == (pairs, 4096)

    @pytest.mark.parametrize("count", range(1, 5))
    def test_an_index_cut_at_a_number(self, pairs, lines, count):
        os.truncate("x.tar.idx", 8 * count)
        if count == 4:
            assert verdict(pairs, IndexState.FITS, "and then no numbers more, so not for Lhotse").readers == {NEMO}
        else:
            verdict(pairs, IndexState.STALE, "goes on with another at byte")
        os.truncate("x.jsonl.idx", 8 * count)
        verdict(lines, IndexState.STALE, "the file goes on at byte")

    def test_an_index_cut_elsewhere(self, pairs):
        os.truncate("x.tar.idx", 35)
        verdict(pairs, IndexState.DAMAGED, "35 bytes is not made of 64-bit offsets")
        os.truncate("x.tar.idx", 0)
        verdict(pairs, IndexState.DAMAGED, "0 bytes")

    def test_an_index_larger_than_can_be(self, pairs):
        os.truncate("x.tar.idx", 2**40)
        verdict(pairs, IndexState.DAMAGED, "137438953472 numbers for 10240 bytes")

    def test_numbers_in_disorder(self, pairs, lines):
        for data in (pairs, lines):
            numbers = stored(f"{data}.idx")
            save(f"{data}.idx", [numbers[0], numbers[2], numbers[1], *numbers[3:]])
            verdict(data, IndexState.DAMAGED, f"offset {numbers[1]} comes after {numbers[2]}")
            save(f"{data}.idx", numbers, ">u8")
            verdict(data, IndexState.DAMAGED, "big-endian")
            save(f"{data}.idx", [*numbers[:-1], 2**63])
            verdict(data, IndexState.STALE, f"offset {2**63} is past the end")
            save(f"{data}.idx", [numbers[0], numbers[1] + 1, *numbers[2:]])
            verdict(data, IndexState.STALE, f"sample 1 is at byte {numbers[1] + 1}")

    @pytest.mark.parametrize("head", [b"MMIDIDX\0\0", b"v1.2 3\na", b"SQLite format 3\0", b"ARROW1\0\0"])
    def test_another_kind_of_index(self, pairs, head):
        Path("x.tar.idx").write_bytes(head.ljust(16, b"\0"))
        verdict(pairs, IndexState.DAMAGED, "not an index of bare offsets")

    def test_pairs_shifted_by_a_member(self, here):
        """Lhotse's own index of this: every second member, whatever they are."""
        Path("x.tar").write_bytes(archive(["README.md", *PAIRS, "z"]))
        save("x.tar.idx", [0, 2048, 4096, 6144, 8192, 10240])
        verdict("x.tar", IndexState.STALE)

    def test_blank_lines(self, here):
        Path("x.jsonl").write_bytes(b'{"a":1}\n{"b":2}\n\n \r\n{"c":3}\n\n')
        write_index("x.jsonl", "x.jsonl.idx", None)
        assert verdict("x.jsonl", IndexState.FITS).samples == 6
        save("x.jsonl.idx", [0, 8, 20, 29])  # Energon's
        assert verdict("x.jsonl", IndexState.FITS, "but for blank ones").samples == 3
        save("x.jsonl.idx", [0, 20, 29])
        verdict("x.jsonl", IndexState.STALE, "sample 1 is at byte 20 in it, and in the file a line at byte 8")

    def test_nemo_v2(self, here):
        Path("x.tar").write_bytes(archive(THREE))
        index = index_path("x.tar", WDS_V2)
        write_index("x.tar", index, WDS_V2)
        good, companion = Path(index).read_bytes(), Path(f"{index}.meta.json").read_bytes()
        assert judge(index, "x.tar").readers == {WDS_V2}
        Path(index).write_bytes(good[:-8])
        assert "its hash" in judge(index, "x.tar").message
        Path(index).write_bytes(good)
        os.unlink(f"{index}.meta.json")
        assert "is missing" in judge(index, "x.tar").message
        Path(f"{index}.meta.json").write_bytes(companion)
        os.utime("x.tar", (5, 5))
        found = judge(index, "x.tar")
        assert (found.state, "another size or time" in found.message) == (IndexState.STALE, True)

    @given(st.lists(st.integers(0, 2**64 - 1), max_size=8), st.binary(max_size=20))
    def test_any_bytes_get_a_verdict(self, tmp_path_factory, numbers, junk):
        place = tmp_path_factory.getbasetemp() / "judged"
        place.mkdir(exist_ok=True)
        (place / "x.tar").write_bytes(archive(PAIRS))
        (place / "x.jsonl").write_text("{}\n" * 8)
        for data in ("x.tar", "x.jsonl"):
            for made in (np.array(numbers, "<u8").tobytes(), junk):
                (place / "x.idx").write_bytes(made)
                found = judge(str(place / "x.idx"), str(place / data))
                assert found.state in (IndexState.FITS, IndexState.STALE, IndexState.DAMAGED)
                assert found.state is not IndexState.FITS or found.samples in (4, 8)


class TestLists:
    @pytest.fixture
    def packed(self, here):
        for name in ("a", "b"):
            Path(f"{name}.jsonl").write_text("{}\n" * 4)
            Path(f"{name}.tar").write_bytes(archive(PAIRS))
        assert write_pack(["a.jsonl", "b.jsonl", "a.tar", "b.tar"], "x.idxpack") == 16
        return "x.idxpack"

    def states(self, path):
        assert is_list(path)
        return {found.message.partition(":")[0]: found.state for found in judge_list(path)}

    def test_a_pack(self, packed):
        assert self.states(packed) == dict.fromkeys(("a.jsonl", "b.jsonl", "a.tar", "b.tar"), IndexState.FITS)
        Path("a.jsonl").write_text('{"a":1}\n' + "{}\n" + '"\n')
        Path("b.jsonl").write_text("{}\n" * 5)
        os.unlink("a.tar")
        assert self.states(packed) == {
            "a.jsonl": IndexState.STALE,
            "b.jsonl": IndexState.STALE,
            "a.tar": IndexState.STALE,
            "b.tar": IndexState.FITS,
        }

    def test_a_flipped_bit_of_a_pack(self, packed):
        data = bytearray(Path(packed).read_bytes())
        data[-9] ^= 1
        Path(packed).write_bytes(data)
        assert self.states(packed)["b.tar"] is IndexState.DAMAGED
        data[300] ^= 1
        Path(packed).write_bytes(data)
        with pytest.raises(FormatError, match="damaged index pack"):
            list(judge_list(packed))

    def test_a_pack_of_paths_and_of_shards_elsewhere(self, here):
        Path("a.jsonl").write_text("{}\n")
        specs = [
            CollectionSpec("r", "k", 1, ["a.jsonl", "no.jsonl"], SegmentContent.PATHS),
            CollectionSpec("r", "k", 2, ["s3://bucket/a.jsonl"]),
        ]
        Path("x.idxpack").write_bytes(b"".join(build_pack(specs, {"s3://bucket/a.jsonl": np.array([0, 3])})))
        assert [found.state for found in judge_list("x.idxpack")] == [
            IndexState.FITS,
            IndexState.STALE,
            IndexState.UNCHECKED,
        ]

    def test_patterns(self, here):
        for number in range(3):
            Path(f"a.{number:02}.jsonl").write_text("{}\n" * number)
        assert write_pack(["a.{00..02}.jsonl"], "x.idxpack") == 3
        assert list(self.states("x.idxpack")) == ["a.00.jsonl", "a.01.jsonl", "a.02.jsonl"]

    @pytest.fixture
    def energon(self, here):
        os.makedirs("data/.nv-meta")
        Path("data/x.tar").write_bytes(archive(THREE))
        Path("data/.nv-meta/.info.json").write_text('{"shard_counts": {"x.tar": 3}}')
        store = sqlite3.connect("data/.nv-meta/index.sqlite")
        store.execute("CREATE TABLE samples (tar_file_id, sample_key, sample_index, byte_offset, byte_size)")
        store.execute(
            "CREATE TABLE sample_parts (tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size)"
        )
        for ordinal, key in enumerate("abc"):
            start = 3072 * ordinal
            store.execute("INSERT INTO samples VALUES (0, ?, ?, ?, 3072)", (key, ordinal, start))
            for i, part in enumerate(("flac", "json", "txt")):
                values = (ordinal, part, start + 1024 * i + 512)
                store.execute("INSERT INTO sample_parts VALUES (0, ?, ?, ?, 10)", values)
        store.commit()
        yield store
        store.close()

    def test_energons_tables(self, energon):
        path = "data/.nv-meta/index.sqlite"
        assert self.states(path) == {"x.tar": IndexState.FITS}
        for change in (
            "UPDATE samples SET sample_key = 'x' WHERE sample_index = 1",
            "UPDATE samples SET byte_offset = 3071 WHERE sample_index = 1",
            "UPDATE samples SET byte_size = 'big' WHERE sample_index = 1",
            "UPDATE sample_parts SET part_name = 'wav' WHERE sample_index = 2 AND part_name = 'flac'",
            "UPDATE sample_parts SET content_byte_size = 11 WHERE sample_index = 2",
            "DELETE FROM samples WHERE sample_index = 2",
            "DELETE FROM sample_parts WHERE sample_index = 2 AND part_name = 'txt'",
            "INSERT INTO samples VALUES (0, 'd', 3, 9216, 0)",
        ):
            before = Path(path).read_bytes()
            energon.execute(change)
            energon.commit()
            assert self.states(path) == {"x.tar": IndexState.STALE}, change
            Path(path).write_bytes(before)

    def test_energons_tables_that_are_none(self, energon):
        energon.execute("INSERT INTO samples VALUES (1, 'd', 0, 0, 0)")
        energon.commit()
        with pytest.raises(FormatError, match="a shard 1"):
            list(judge_list("data/.nv-meta/index.sqlite"))
        energon.execute("DROP TABLE samples")
        energon.commit()
        with pytest.raises(FormatError, match="not Energon's tables"):
            list(judge_list("data/.nv-meta/index.sqlite"))
        Path("data/.nv-meta/.info.json").write_text("[]")
        with pytest.raises(FormatError, match="not the list of Energon's shards"):
            list(judge_list("data/.nv-meta/index.sqlite"))

    def test_wids(self, here):
        Path("x.tar").write_bytes(archive([*THREE, ".hidden"]))
        shard = {"url": "x.tar", "nsamples": 3, "filesize": 20480}

        def told(**changes):
            value = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [shard | changes]}
            Path("x.json").write_text(json.dumps(value))
            return next(iter(self.states("x.json").values()))

        assert told() is IndexState.FITS
        assert told(nsamples=4) is IndexState.FITS  # as wids itself counts
        assert told(nsamples=5) is IndexState.STALE
        assert told(filesize=10240) is IndexState.STALE
        assert told(url="old/place/x.tar") is IndexState.FITS
        assert told(url="y.tar") is IndexState.STALE
        assert told(url="pipe:curl x") is IndexState.UNCHECKED
        for broken in ({"nsamples": "3"}, {"url": 5}):
            with pytest.raises(FormatError, match="not a list of shards by wids"):
                told(**broken)
        Path("x.json").write_text('{"__kind__": "other"}')
        with pytest.raises(FormatError, match="'other'"):
            list(judge_list("x.json"))
