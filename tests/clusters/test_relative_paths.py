"""Paths that a user types are relative to where he is, also for workers that are elsewhere. The bytes are the same."""

import os
import shutil
import subprocess
from contextlib import chdir
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import TOUCHFS, in_one_process
from dask_cluster import invoke
from interleaved_tars import make_image, make_wds_tar, mint_sample
from item_rows import batch_of, image_row
from tars import write_tar

from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.tar import TarTarget

SPEECH = Path(__file__).parent.parent / "data" / "speech"


def tree(path):
    return {str(found.relative_to(path)): found.read_bytes() for found in path.rglob("*") if found.is_file()}


@pytest.fixture
def dask(dask_of_any_size):
    """One worker is enough here."""
    dask_of_any_size.have(1)
    return dask_of_any_size


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A command that must succeed, in an empty directory, and what it prints."""
    monkeypatch.chdir(tmp_path)
    return command


def command(*arguments, told=False, cwd=".", **options):
    if "--dask" in arguments:
        with chdir(cwd):
            done = invoke(*arguments, **options)
        assert (done.exception, bool(done.stderr)) == (None, told), (done, done.stderr)
    else:
        words = [TOUCHFS, *map(str, in_one_process(*arguments))]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=cwd, **options)
        assert (done.returncode, bool(done.stderr)) == (0, told), done
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def packed_once(tmp_path_factory):
    """Three shards, whose `data.list` has relative lines; and what a conversion of them makes here."""
    place = tmp_path_factory.mktemp("packed")
    command("pack", "touchnet", SPEECH / "speech.jsonl", "packed", "--num-utt-per-shard", 4, cwd=place)
    assert (place / "packed/data.list").read_text().startswith("packed/000000000 ")
    command("convert", "packed", "converted", *TO_TAR, cwd=place)
    return place


TO_TAR = ("--to", "tar", "--num-utt-per-shard", 3)


@pytest.fixture
def packed(run, packed_once):
    shutil.copytree(packed_once / "packed", "packed")
    return "packed"


def test_packs(run, dask):
    Path("data.jsonl").write_text((SPEECH / "speech.jsonl").read_text())
    Path("wav").symlink_to(SPEECH / "wav")
    for kind, *options in (["touchnet", "--num-utt-per-shard", 4], ["shar"]):
        here = run("pack", kind, "data.jsonl", "out", *options)
        Path("out").rename(f"{kind}-here")
        assert run("pack", kind, "data.jsonl", "out", *options, "--dask", dask.address) == here
        assert tree(Path("out")) == tree(Path(f"{kind}-here"))
        Path("out").rename(f"{kind}-there")


@pytest.mark.parametrize("absolutely", [False, pytest.param(True, marks=pytest.mark.variant)])
def test_conversions(run, dask, packed, packed_once, absolutely):
    """Also of a dataset that is named absolutely, but whose list has relative lines."""
    source = os.path.abspath(packed) if absolutely else packed
    assert run("convert", source, "there", *TO_TAR, "--dask", dask.address) == "there: 4 shards, 10 samples\n"
    assert tree(Path("there")) == tree(packed_once / "converted")


def test_what_a_conversion_skips(run, dask):
    write_tar(Path("set/0.tar"), {"a.txt": b"1", "b.cls": b"no number", "c.txt": b"2"})
    for place, *options in (["here"], ["there", "--dask", dask.address]):
        words = ["convert", "set", place, "--to", "shar", "--skip-bad", *options]
        assert "has no shards, because there are no samples" in run(*words, told=True)
    assert tree(Path("there")) == tree(Path("here"))
    assert b'"shard": "set/0.tar"' in Path("there/skipped.jsonl").read_bytes()


def test_a_conversion_that_was_begun_here_goes_on_there(run, dask, packed, packed_once):
    def stop(done, total):
        if done > 0.7 * total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(packed, "out", TarTarget(3), progress=stop)
    made = {path.name: path.stat().st_ino for path in Path("out").glob("*.tar")}
    assert made
    run("convert", packed, "out", *TO_TAR, "--dask", dask.address)
    assert tree(Path("out")) == tree(packed_once / "converted")
    assert made.items() <= {path.name: path.stat().st_ino for path in Path("out").glob("*.tar")}.items()


def test_annotations(run, dask, packed):
    """Workers need not see the files that this process has open: they see other processes than we."""
    lines = run("meta", "get", packed).replace("Good morning", "Good evening").replace("Any questions", "Questions")
    done = run("meta", "put", packed, "--dask", dask.address, input=lines)
    assert done == "packed: 2 samples changed in 1 shard\n"
    assert run("meta", "get", packed) == lines
    assert sorted(os.listdir(packed)) == ["000000000", "000000001", "000000002", "data.list"]


def test_interleaved_samples(run, dask):
    for shard in range(2):
        make_wds_tar(Path(f"mint/{shard}.tar"), [mint_sample(2 * shard + number, frames=2) for number in range(2)])
    options = ("--to", "wds", "--where", "aspect_ratio < 1.55")
    here = run("interleave", "mint", "out", *options)
    Path("out").rename("here")
    assert run("interleave", "mint", "out", *options, "--dask", dask.address) == here
    assert tree(Path("out")) == tree(Path("here"))


def test_images_of_an_allowed_location(run, dask, tmp_path):
    """For what is filtered, and for what is written."""
    Path("rows").mkdir()
    Path("pictures").mkdir()
    Path("pictures/a.png").write_bytes(make_image("png"))
    pq.write_table(batch_of([image_row(0, str(tmp_path / "pictures/a.png"))]).table, "rows/a.parquet")
    options = ("--allow-location", "pictures", "--where", "width == 24", "--to", "wds")
    done = run("interleave", "rows", "out", *options, "--dask", dask.address)
    assert done == "out: 1 shard, 1 sample, 1 item\n"


def test_indexes_of_other_tools(run, dask):
    for place in ("here", "there"):
        write_tar(Path(place, "a.tar"), {"a.wav": b"1", "a.json": b"{}"})
        write_tar(Path(place, "b.tar"), {"a.wav": b"1", "a.json": b"{}"})
        os.utime(f"{place}/b.tar", (1, 1))
        Path(place, "a.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
        options = ("--dask", dask.address) if place == "there" else ()
        for command in (
            ["jsonl", "a.jsonl"],
            ["tar", "a.tar"],
            ["webdataset", "--dialect", "wds-v2", "b.tar"],
            ["pack", "a.jsonl", "b.tar", "--dialect", "wds-v2", "-o", "x.idxpack"],
            ["--check", "x.idxpack"],
        ):
            run("index", *command, *options, cwd=place)
    assert tree(Path("there")) == tree(Path("here"))


def test_a_list_elsewhere_names_files_relative_to_the_user(run, dask):
    Path("a.jsonl").write_text('{"a": 1}\n')
    Path("lists").mkdir()
    run("index", "pack", "a.jsonl", "-o", "lists/x.idxpack", "--dask", dask.address)
    assert "x.idxpack: fits: 1 shard, 1 sample\n" in run("index", "--check", "lists", "--dask", dask.address)
