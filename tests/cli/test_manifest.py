"""touchfs manifest: the lists of manifests/, without a mount."""

import csv
import io
import json
import os

import pytest
from tars import write_tar


@pytest.fixture
def raw(touchfs):
    """What a command that must succeed writes to stdout."""

    def run(*arguments):
        done = touchfs(*arguments)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    return run


KINDS = {"kaldi": 7, "lhotse": 3}
FILES = {
    "nemo": "nemo_manifest.jsonl",
    "hf": "hf/metadata.csv",
    "wenet": "wenet/data.list",
    "filelist": "filelist.txt",
    "catalog": "catalog.arrow",
    "extents": "extents.parquet",
}


@pytest.mark.parametrize("kind", KINDS)
def test_lists_in_a_directory_are_those_of_the_tree(raw, shards, tmp_path, kind):
    raw("manifest", shards, tmp_path / "a" / "b", "--kind", kind)
    files = sorted((tmp_path / "a" / "b").iterdir())
    assert len(files) == KINDS[kind]
    for file in files:
        assert file.read_bytes() == raw("cat", f"{shards}:manifests/{kind}/{file.name}")


@pytest.mark.parametrize("kind", FILES)
def test_a_list_in_a_file_or_on_stdout(raw, shards, tmp_path, kind):
    raw("manifest", shards, "--kind", kind, tmp_path / "list")
    stored = (tmp_path / "list").read_bytes()
    assert stored == raw("manifest", "--kind", kind, shards) == raw("cat", f"{shards}:manifests/{FILES[kind]}")


def test_what_was_written_is_said(raw, touchfs, shards, here):
    names = ["cuts.jsonl", "recordings.jsonl", "supervisions.jsonl"]
    rows = json.loads(raw("manifest", shards, "out", "--kind", "lhotse", "--json"))
    assert sorted((row["list"], row["path"]) for row in rows) == [(f"lhotse/{name}", f"out/{name}") for name in names]
    assert {row["path"]: row["bytes"] for row in rows} == {
        f"out/{name}": (here / "out" / name).stat().st_size for name in names
    }
    said = raw("manifest", shards, "out", "--kind", "lhotse").decode().splitlines()
    assert said == [f"{row['path']}: {row['bytes']:,} bytes" for row in rows]
    assert touchfs("manifest", shards, "--kind", "nemo", "--json").returncode == 2


def test_paths_begin_with_the_prefix(raw, shards):
    for prefix in ("/mnt/a b", "/mnt/a b/"):
        lines = raw("manifest", shards, "--kind", "nemo", "--path-prefix", prefix).splitlines()
        assert json.loads(lines[0])["audio_filepath"].startswith("/mnt/a b/shards/0")
    assert raw("manifest", shards, "--kind", "filelist").startswith(b"shards/0")


def test_a_prefix_that_a_csv_quotes(raw, shards):
    rows = list(csv.DictReader(io.StringIO(raw("manifest", shards, "--kind", "hf", "--path-prefix", '/a,"b').decode())))
    assert rows
    assert all(row["file_name"].startswith('/a,"b/s') for row in rows)


def test_what_is_left_out_is_said(touchfs, tmp_path):
    write_tar(tmp_path / "x.tar", {"a.flac": b"fLaC"})
    done = touchfs("manifest", tmp_path / "x.tar", "--kind", "filelist")
    assert (done.returncode, done.stdout) == (0, b"")
    command = f"`touchfs cat {tmp_path}/x.tar:manifests/left_out.txt` says why"
    assert done.stderr.decode() == f"1 file not in all lists: {command}\n"
    assert touchfs("cat", f"{tmp_path}/x.tar:manifests/left_out.txt").stdout.startswith(b"shards/x/a.flac\t")


def test_pictures_have_no_lists_of_recordings(touchfs, raw, tmp_path):
    tar = write_tar(tmp_path / "x.tar", {"a.jpg": b"\xff\xd8\xff", "a.cls": b"3"})
    for kind, out in (("nemo", []), ("kaldi", [tmp_path / "out"]), ("catalog", [])):
        done = touchfs("manifest", tar, *out, "--kind", kind)
        told = f"touchfs: {tar}: no sample has audio, so {kind} has nothing to list: use --kind filelist or extents\n"
        assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", told)
    assert not (tmp_path / "out").exists()
    assert raw("manifest", tar, "--kind", "filelist") == b"shards/x/a.jpg\nshards/x/a.cls\n"


def test_several_lists_need_a_directory(touchfs, shards, tmp_path):
    done = touchfs("manifest", shards, "--kind", "kaldi")
    assert done.returncode == 2
    assert b"name a directory" in done.stderr
    (tmp_path / "file").touch()
    done = touchfs("manifest", shards, tmp_path / "file", "--kind", "kaldi")
    assert done.returncode == 1
    assert os.fsencode(tmp_path / "file") in done.stderr


def test_several_datasets_are_one(touchfs, raw, here):
    """The last word is OUT, and `-` is stdout. A shard is never taken for it."""
    for name in ("b", "a"):
        write_tar(here / f"{name}.tar", {f"{name}.txt": b"x"})
    listed = b"shards/a/a.txt\nshards/b/b.txt\n"  # sorted, as Kaldi requires
    assert raw("manifest", "b.tar", "a.tar", "-", "--kind", "filelist") == listed
    raw("manifest", "b.tar", "a.tar", "list.txt", "--kind", "filelist")
    assert (here / "list.txt").read_bytes() == listed
    before = (here / "a.tar").read_bytes()
    done = touchfs("manifest", "b.tar", "a.tar", "--kind", "filelist")
    told = b"touchfs: a.tar: is a shard, and would be overwritten: name OUT last, or - for stdout; "
    told += b"remove it if it is an old list\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", told)
    assert (here / "a.tar").read_bytes() == before
