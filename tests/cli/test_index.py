"""`touchfs index` for other tools: what it writes, leaves, refuses and says."""

import gzip
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

LINES = "".join(f'{{"n": {n}}}\n' for n in range(3))


def make_tar(path, names):
    with tarfile.open(path, "w") as file:
        for name in names:
            file.addfile(tarfile.TarInfo(name), io.BytesIO())


def make_pairs(path, count=3):
    make_tar(path, [f"{n}.{suffix}" for n in range(count) for suffix in ("wav", "json")])


def numbers(path):
    return np.fromfile(path, "<u8").tolist()


@pytest.fixture
def fails(touchfs):
    def run(*arguments, status=1):
        done = touchfs("index", *arguments)
        assert (done.returncode, b"Traceback" in done.stderr) == (status, False), done
        return done.stderr.decode().splitlines()

    return run


class TestForms:
    def test_the_plain_form_takes_any_source(self, here, shards, text):
        shutil.copytree(shards, here / "tar")
        for source in ("./tar", str(here / "tar")):
            assert text("index", source).startswith(f"{source}: 3 shards, 10 samples")
        assert text("index", "--jobs", "1", "tar") == "tar: 3 shards, 10 samples; indexed already"

    def test_the_help_shows_the_options_of_the_plain_form_and_the_commands(self, text):
        told = text("index", "--help-all")
        for word in ("--in-place", "--sample-rate", "--check", "jsonl", "shar", "webdataset", "pack"):
            assert f"  {word}" in told
        assert not any(line.endswith("...") for line in told.splitlines())

    def test_wrong_commands(self, fails):
        assert fails(status=2) == ["touchfs index: Missing argument 'DATASET…'. Try `touchfs index --help`."]
        assert fails("tar", status=2) == [
            "touchfs index tar: Missing argument 'PATH…'. Try `touchfs index tar --help`."
        ]
        assert fails("jsonl", "", status=2) == ["touchfs: the path is empty: is a variable unset?"]


class TestJsonlAndTar:
    def test_what_is_right_is_left_alone(self, here, text):
        Path("a.jsonl").write_text(LINES)
        assert text("index", "jsonl", "a.jsonl") == "a.jsonl.idx: 3 samples; indexed now"
        assert numbers("a.jsonl.idx") == [0, 9, 18, 27]
        os.utime("a.jsonl.idx", (5, 5))
        assert text("index", "jsonl", "a.jsonl") == "a.jsonl.idx: 3 samples; indexed already"
        assert os.stat("a.jsonl.idx").st_mtime == 5
        assert text("index", "jsonl", "--force", "a.jsonl") == "a.jsonl.idx: 3 samples; indexed now"
        assert os.stat("a.jsonl.idx").st_mtime > 5

    def test_what_is_wrong_is_left_alone_too_but_said(self, here, text, fails):
        make_pairs("a.tar")
        Path("a.tar.idx").write_bytes(bytes(24))
        (told,) = fails("tar", "a.tar")
        assert told.startswith("touchfs: a.tar.idx: stale: ") and told.endswith("; --force replaces it")
        assert numbers("a.tar.idx") == [0, 0, 0]
        assert text("index", "tar", "--force", "a.tar") == "a.tar.idx: 3 samples; indexed now"
        assert numbers("a.tar.idx") == [0, 1024, 2048, 10240]

    def test_one_for_another_reader_is_not_what_was_asked_for(self, here, text, fails):
        make_tar("a.tar", ["a.wav", "a.json", "b.wav", "b.json", "b.0.json", "b.1.json"])
        assert text("index", "webdataset", "a.tar") == "a.tar.idx: 2 samples; indexed now"
        assert "for Energon; --force replaces it" in fails("webdataset", "--dialect", "nemo", "a.tar")[0]

    def test_data_of_another_kind_are_not_indexed_already(self, here, text, fails):
        Path("x.jsonl").write_text(LINES)
        make_pairs("y.tar")
        for _ in range(2):  # before there are indexes, and with them
            for command in (["tar"], ["tar", "--check"], ["webdataset"]):
                assert fails(*command, "x.jsonl") == ["touchfs: x.jsonl: is JSON lines: `touchfs index jsonl` it"]
            for command in (["jsonl"], ["jsonl", "--check"]):
                (line,) = fails(*command, "y.tar")
                assert line == "touchfs: y.tar: is a tar: `touchfs index tar` or `touchfs index webdataset` it"
            text("index", "jsonl", "x.jsonl")
            text("index", "tar", "y.tar")

    def test_an_error_does_not_keep_the_others_from_being_indexed(self, here, touchfs):
        for name in "abc":
            make_pairs(f"{name}.tar")
        os.truncate("b.tar", 0)
        Path("b.tar").write_bytes(Path("a.tar").read_bytes()[:1024] + b"damaged " * 128)
        for jobs in "12":
            done = touchfs("index", "tar", "--force", "--jobs", jobs, "a.tar", "b.tar", "nosuch.tar", "c.tar")
            assert done.returncode == 1
            assert done.stdout == b"a.tar.idx: 3 samples; indexed now\nc.tar.idx: 3 samples; indexed now\n"
            damaged, missing = done.stderr.decode().splitlines()
            assert damaged.startswith("touchfs: b.tar: not a tar header") and damaged.endswith("(at byte 1024)")
            assert missing == "touchfs: nosuch.tar: no such file or directory"
            assert not Path("b.tar.idx").exists()

    def test_compressed(self, here, fails):
        Path("a.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
        assert fails("jsonl", "a.jsonl.gz") == [
            "touchfs: a.jsonl.gz: is compressed, and offsets are of plain bytes: `gunzip` it first, or let touchfs "
            "read it as it is"
        ]

    def test_another_directory(self, here, text, fails):
        for name in ("a/x.jsonl", "b/x.jsonl"):
            Path(name).parent.mkdir()
            Path(name).write_text(LINES)
        (told,) = fails("jsonl", "--output-dir", "out", "a/x.jsonl", "b/x.jsonl", status=2)
        assert told.startswith("touchfs: out/x.jsonl.idx: would be the index of a/x.jsonl and of b/x.jsonl")
        assert not Path("out").exists()
        assert text("index", "jsonl", "--output-dir", "out/deep", "a/x.jsonl", "a/x.jsonl").count("\n") == 0
        assert numbers("out/deep/x.jsonl.idx") == [0, 9, 18, 27]
        assert os.listdir("a") == ["x.jsonl"]

    def test_remarks(self, here, touchfs):
        Path("a.jsonl").write_text("{}\n\n{}\n")
        done = touchfs("index", "jsonl", "a.jsonl")
        assert (done.returncode, done.stdout) == (0, b"a.jsonl.idx: 3 samples; indexed now\n")
        assert done.stderr.startswith(b"touchfs: a.jsonl: line 2, at byte 3, is blank")


class TestCheck:
    def test_each_index_gets_a_line_and_nothing_is_written(self, here, touchfs):
        for name in ("right", "missing", "stale", "damaged"):
            make_pairs(f"{name}.tar")
            touchfs("index", "tar", f"{name}.tar")
        os.unlink("missing.tar.idx")
        make_pairs("stale.tar", 4)
        os.truncate("damaged.tar.idx", 9)
        before = {path.name: path.stat().st_mtime_ns for path in here.iterdir()}
        done = touchfs("index", "tar", "--check", "right.tar", "missing.tar", "stale.tar", "damaged.tar")
        assert done.returncode == 1
        assert done.stdout == b"right.tar.idx: fits: 3 samples, for Lhotse, Energon, NeMo\n"
        lines = done.stderr.decode().splitlines()
        assert [line.split(": ")[1:3] for line in lines] == [
            [f"{name}.tar.idx", name] for name in ("missing", "stale", "damaged")
        ]
        assert {path.name: path.stat().st_mtime_ns for path in here.iterdir()} == before
        assert touchfs("index", "tar", "--check", "right.tar").returncode == 0
        told = json.loads(touchfs("index", "--check", "--json", "right.tar", "stale.tar").stdout)
        assert [(row["index"], bool(row["line"]), len(row["wrong"])) for row in told] == [
            ("right.tar.idx", True, 0),
            ("stale.tar.idx", False, 1),
        ]

    def test_the_plain_form_checks_all_indexes_of_a_directory(self, here, text, fails):
        os.mkdir("d")
        make_pairs("d/a.tar")
        Path("d/a.jsonl").write_text(LINES)
        text("index", "shar", "d")
        text("index", "webdataset", "--dialect", "wds-v2", "d/a.tar")
        text("index", "pack", "d/a.jsonl", "d/a.tar", "-o", "d/a.idxpack")
        Path("d/a.idx").write_bytes(b"of no file that is here")
        Path("d/a.json").write_text(
            json.dumps({"__kind__": "wids-shard-index-v1", "shardlist": [{"url": "a.tar", "nsamples": 3}]})
        )
        assert text("index", "--check", "d").splitlines() == [
            "d/a.idxpack: fits: 2 shards, 6 samples",
            "d/a.json: fits: 1 shard, 3 samples",
            "d/a.jsonl.idx: fits: 3 samples, a line each",
            "d/a.tar.idx: fits: 3 samples, for Lhotse, Energon, NeMo",
            "d/a.tar.wds-v2.idx: fits: 3 samples, for NeMo's v2 where the tar is named 'd/a.tar'",
        ]
        assert text("index", "--check", "d/a.tar").count("\n") == 1
        assert text("index", "--check", "d/a.tar.idx").startswith("d/a.tar.idx: fits")
        make_pairs("d/a.tar", 4)
        assert len(fails("--check", "d")) == 4
        os.unlink("d/a.jsonl.idx")
        assert fails("--check", "d/a.jsonl") == ["touchfs: d/a.jsonl.idx: missing: there is no index of a.jsonl"]

    def test_what_can_have_no_index(self, here, fails):
        Path("a.tar.gz").write_bytes(gzip.compress(bytes(10240)))
        Path("a.tar.gz.idx").write_bytes(bytes(8))
        for arguments in (("tar", "--check", "a.tar.gz"), ("--check", "a.tar.gz"), ("--check", ".")):
            assert "is compressed" in fails(*arguments)[0]
        assert fails("--check", "nosuch") == ["touchfs: nosuch: no such file or directory"]


class TestOthers:
    def test_a_shar_directory(self, here, text, fails):
        os.mkdir("d")
        assert fails("shar", "d") == ["touchfs: d: no .jsonl and no .tar here"]
        Path("d/cuts.000000.jsonl.gz").write_bytes(gzip.compress(b"{}\n"))
        assert "what is compressed has no index" in fails("shar", "d")[0]
        Path("d/cuts.000000.jsonl").write_text(LINES)
        make_pairs("d/recording.000000.tar")
        Path("d/README.md").write_text("text")
        assert text("index", "shar", "d").splitlines() == [
            "d/cuts.000000.jsonl.idx: 3 samples; indexed now",
            "d/recording.000000.tar.idx: 3 samples; indexed now",
        ]
        assert fails("shar", "nosuch") == ["touchfs: nosuch: no such file or directory"]

    def test_a_webdataset(self, here, text, fails):
        make_tar("a.tar", [f"{n}.{suffix}" for n in range(3) for suffix in ("wav", "json", "txt")])
        assert "is a third member of one stem" in fails("tar", "a.tar")[0]
        for dialect, name, last in (("energon", "a.tar.idx", 4608), ("wds-v2", "a.tar.wds-v2.idx", 10240)):
            assert text("index", "webdataset", "--dialect", dialect, "a.tar") == f"{name}: 3 samples; indexed now"
            assert numbers(name) == [0, 1536, 3072, last]
            assert text("index", "webdataset", "--dialect", dialect, "--check", "a.tar").startswith(f"{name}: fits")
        assert json.loads(Path("a.tar.wds-v2.idx.meta.json").read_bytes())["source"]["path"] == "a.tar"
        assert text("index", "webdataset", "--dialect", "nemo", "a.tar") == "a.tar.idx: 3 samples; indexed already"

    def test_a_pack(self, here, text, fails):
        for name in ("a", "b"):
            Path(f"{name}.jsonl").write_text(LINES)
        assert text("index", "pack", "a.jsonl", "b.jsonl", "-o", "x.idxpack") == "x.idxpack: 6 samples"
        assert fails("pack", "a.jsonl", "-o", "x.idxpack", status=2) == [
            "touchfs: x.idxpack: already exists: --force replaces it"
        ]
        assert text("index", "pack", "--check", "a.jsonl", "-o", "x.idxpack").startswith("x.idxpack: fits: 2 shards")
        Path("b.jsonl").write_text(LINES * 2)
        assert fails("pack", "--check", "a.jsonl", "-o", "x.idxpack") == [
            "touchfs: x.idxpack: stale: b.jsonl: has 54 bytes, and 27 when it was indexed"
        ]
        assert text("index", "pack", "--force", "a.jsonl", "b.jsonl", "-o", "x.idxpack") == "x.idxpack: 9 samples"
        assert fails("pack", "nosuch.jsonl", "-o", "z.idxpack") == ["touchfs: nosuch.jsonl: no such file or directory"]
        assert not Path("z.idxpack").exists()
