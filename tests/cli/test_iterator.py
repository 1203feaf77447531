"""`touchfs iterator`: the same iterators with a mount and without one."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from megatron import UINT16, write_prefix
from tars import write_tar

HEADING = "name\tepoch\tposition\tlength"


@pytest.fixture(params=["source", "mount"])
def where(request, shards, touchfs, tmp_path):
    """What the command is given, and its options."""
    state = ["--state-dir", tmp_path / "state"]
    if request.param == "source":
        yield shards, state
        return
    done = touchfs("mount", shards, tmp_path / "mnt", "--path-prefix", "", *state)
    assert done.returncode == 0, done.stderr
    yield tmp_path / "mnt", state
    subprocess.run(["fusermount3", "-u", "-z", tmp_path / "mnt"], check=True)


@pytest.fixture
def iterator(where, touchfs):
    place, state = where

    def run(command, *arguments, **options):
        return touchfs("iterator", command, place, *arguments, *state, **options)

    return run


def lines(done):
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout.decode().splitlines()


def said(done, status):
    assert (done.returncode, done.stdout) == (status, b""), done
    (line,) = done.stderr.decode().splitlines()
    return line


def test_made_stepped_saved_restored_listed_removed(iterator, shards, text, tmp_path):
    spec = {"shuffle": 7, "batch": 4}
    assert lines(iterator("create", "train", "--spec", json.dumps(spec))) == []
    wanted = text("iterate", shards, "--shuffle", "7").splitlines()
    assert lines(iterator("next", "train")) == wanted[:4]
    token = iterator("token", "train").stdout
    assert json.loads(token)["state"]["position"] == 4
    (tmp_path / "checkpoint").write_bytes(token)
    assert lines(iterator("next", "train")) == wanted[4:8]
    assert lines(iterator("list")) == [HEADING, "train\t0\t8\t10"]
    assert lines(iterator("restore", "train", tmp_path / "checkpoint")) == []
    assert lines(iterator("next", "train")) == wanted[4:8]
    assert [lines(iterator("next", "train")) for _ in range(2)] == [wanted[8:], []]
    assert lines(iterator("list")) == [HEADING, "train\t1\t0\t10"]
    row = {"name": "train", "epoch": 1, "position": 0, "length": 10, "error": None}
    assert json.loads(iterator("list", "--json").stdout) == [row]
    assert lines(iterator("rm", "train")) == lines(iterator("list")) == []


def test_errors_are_one_line(iterator, tmp_path):
    lines(iterator("create", "x"))
    (tmp_path / "wrong").write_text('{"kind": "none"}')
    (tmp_path / "no json").write_text("{")
    for arguments, status, told in [
        (("create", "x"), 2, "touchfs: there is an iterator 'x' already"),
        (("create", "a/b"), 2, "touchfs: an iterator cannot be called 'a/b': "),
        (("create", "a\nb"), 2, "touchfs: an iterator cannot be called "),
        (("create", "y", "--spec", "{"), 2, "touchfs: --spec: not JSON"),
        (("create", "y", "--spec", '{"rank": 1}'), 2, "touchfs: "),
        (("next", "y"), 1, "touchfs: there is no iterator 'y'"),
        (("rm", "y"), 1, "touchfs: there is no iterator 'y'"),
        (("restore", "x", tmp_path / "wrong"), 2, "touchfs: token: the kind of a token is "),
        (("restore", "x", tmp_path / "no json"), 2, f"touchfs: {tmp_path}/no json: not JSON"),
    ]:
        line = said(iterator(*arguments), status)
        assert line.startswith(told) or (told in line.replace("touchfs: ", "touchfs: token: ", 1)), line
    assert lines(iterator("list")) == [HEADING, "x\t0\t0\t10"]


def test_a_mount_and_its_source_have_the_same_ones(shards, touchfs, text, tmp_path):
    state = ["--state-dir", os.fspath(tmp_path / "state")]
    text("iterator", "create", shards, "train", *state)
    text("mount", shards, tmp_path / "mnt", *state)
    try:
        told = [(tmp_path / "mnt/.touchfs/iterators/train/next").read_text().removeprefix(f"{tmp_path}/mnt/").strip()]
        told.append(text("iterator", "next", shards, "train", *state))
        assert told == text("iterate", shards, "--take", "2").splitlines()
    finally:
        text("umount", tmp_path / "mnt")


def test_one_that_cannot_go_on_does_not_hide_the_others(touchfs, tmp_path):
    source, state = tmp_path / "lines.jsonl", ["--state-dir", tmp_path / "state"]
    source.write_text('{"id": "a"}\n{"id": "b"}\n')
    for name in ("a", "b", "c"):
        lines(touchfs("iterator", "create", source, name, *state))
    lines(touchfs("iterator", "next", source, "b", *state))
    source.write_text('{"id": "a"}\n{"id": "b"}\n{"id": "c"}\n')
    done = touchfs("iterator", "list", source, *state)
    heading, *told = done.stdout.decode().splitlines()
    assert heading == HEADING
    assert [told[0], told[2]] == ["a\t0\t0\t3", "c\t0\t0\t3"]
    assert told[1].startswith("b\t?\t?\t?\tthe dataset has changed since")
    assert (done.returncode, done.stderr.count(b"1 iterator cannot continue")) == (1, 1)


def test_a_spec_that_is_refused_says_why(iterator):
    assert "spec.shuffle is an integer" in said(iterator("create", "train", "--spec", '{"shuffle": "x"}'), 2)
    assert lines(iterator("list")) == []


def test_a_mount_without_control_files_has_none(shards, touchfs, tmp_path):
    assert touchfs("mount", "--control", "none", shards, tmp_path / "mnt").returncode == 0
    try:
        told = said(touchfs("iterator", "create", tmp_path / "mnt", "x"), 2)
        assert "this mount has no control files: use the dataset's own path" in told
    finally:
        subprocess.run(["fusermount3", "-u", tmp_path / "mnt"], check=True)


def test_several_datasets_are_one(touchfs, text, here):
    """As for `mount`, which has the same iterators for them. The last words are NAME, and FILE."""
    for name in ("b", "a"):
        write_tar(here / f"{name}.tar", {f"{name}{number}.txt": b"x" for number in range(3)})
    tars = ["b.tar", "a.tar"]
    text("iterator", "create", *tars, "train")
    assert lines(touchfs("iterator", "next", *tars, "train")) == ["shards/b/b0.txt"]
    (here / "state").write_text(text("iterator", "token", *tars, "train"))
    assert lines(touchfs("iterator", "next", *tars, "train")) == ["shards/b/b1.txt"]
    assert lines(touchfs("iterator", "restore", *tars, "train", "state")) == []
    assert lines(touchfs("iterator", "list", *tars)) == [HEADING, "train\t0\t1\t6"]
    with (here / "state").open("rb") as state:
        assert lines(touchfs("iterator", "restore", *tars, "train", "-", stdin=state)) == []
    text("mount", *tars, "mnt")
    try:
        assert lines(touchfs("iterator", "next", "mnt", "train")) == [f"{here}/mnt/shards/b/b1.txt"]
    finally:
        text("umount", "mnt")
    text("iterator", "rm", *tars, "train")
    assert lines(touchfs("iterator", "list", *tars)) == []


def test_words_that_are_missing_are_named(touchfs):
    for words, missing in [
        (["restore"], "DATASET…"),
        (["restore", "x.tar"], "NAME"),
        (["next", "x.tar"], "NAME"),
        (["next"], "DATASET…"),
    ]:
        assert f"Missing argument '{missing}'" in said(touchfs("iterator", *words), 2)


class Growing(NamedTuple):
    """A dataset whose iterators are stepped at `where`, a mount or the dataset itself. `grow` adds a shard."""

    data: Path
    where: Path
    run: Callable[..., subprocess.CompletedProcess[bytes]]
    grow: Callable[[], None]

    @property
    def is_mounted(self):
        return self.where != self.data

    def keys(self, count):
        """Those of so many batches."""
        return [line for _ in range(count) for line in lines(self.run("next", "train"))]


@pytest.fixture(params=["source", pytest.param("mount", marks=pytest.mark.variant)])
def growing(request, touchfs, tmp_path, text):
    data, state = tmp_path / "d", ["--state-dir", tmp_path / "state"]
    for shard in ("b", "c"):
        write_tar(data / f"{shard}.tar", {f"{shard}{number}.txt": b"x" for number in range(5)})
    where = data
    if request.param == "mount":
        where = tmp_path / "mnt"
        text("mount", data, where, "--path-prefix", "", *state)

    def run(command, *arguments, **options):
        return touchfs("iterator", command, where, *arguments, *state, **options)

    def grow():
        write_tar(data / "a.tar", {f"a{number}.txt": b"x" for number in range(2)})
        if where != data:
            text("reload", where)

    yield Growing(data, where, run, grow)
    if where != data:
        subprocess.run(["fusermount3", "-u", "-z", where], check=True)


def test_an_iterator_goes_on_over_a_dataset_that_has_grown(growing):
    run = growing.run
    assert not run("create", "train", "--spec", '{"shuffle": 7, "output": "key"}').stderr
    came = growing.keys(3)
    token = run("token", "train").stdout
    came += lines(run("next", "train"))
    growing.grow()
    done = run("next", "train")
    assert done.returncode == 2
    assert b"go on with what is left" in done.stderr and b"`touchfs iterator restore` does with --extend" in done.stderr
    done = run("restore", "train", "--extend")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"touchfs: 6 samples of the old order left, then 2 new samples\n"
    rest = growing.keys(8)
    assert set(rest[6:]) == {"a0", "a1"} and sorted(came + rest) == sorted(
        [f"{shard}{number}" for shard in "bc" for number in range(5)] + ["a0", "a1"]
    )
    done = run("restore", "train", "-", input=token, stdin=None)
    assert done.returncode != 0
    done = run("restore", "train", "-", "--extend", input=token, stdin=None)
    assert done.stderr == b"touchfs: 7 samples of the old order left, then 2 new samples\n"
    assert lines(run("next", "train")) == came[3:]


def test_a_mixture_goes_on_over_a_dataset_that_has_grown(growing):
    run = growing.run
    spec = {"mux": [{"shuffle": 7}, {}], "weights": [2, 1], "output": "key", "batch": 3}
    assert not run("create", "train", "--spec", json.dumps(spec)).stderr
    came = growing.keys(2)
    growing.grow()
    assert b"`touchfs iterator restore`" in run("next", "train").stderr
    if growing.is_mounted:
        (growing.where / ".touchfs/iterators/train/token").write_text('{"extend": true}')
    else:
        assert run("restore", "train", "--extend").stderr == (
            b"touchfs: source 0: 6 samples of the old order left, then 2 new samples; "
            b"source 1: 8 samples of the old order left, then 2 new samples\n"
        )
    rest = growing.keys(6)
    assert run("next", "train").stdout == b"", "the epoch of 20 samples has got four more"
    old = [f"{shard}{number}" for shard in "bc" for number in range(5)]
    first = [key for number, key in enumerate(came + rest) if number % 3 != 1]
    assert sorted(first[:10]) == old and sorted(first[10:12]) == ["a0", "a1"]
    assert (came + rest)[1::3] == old[:8]
    if growing.is_mounted:
        assert not run("create", "other", "--spec", json.dumps(spec)).stderr
        for name in ("other", "train"):
            (growing.where / f".touchfs/iterators/{name}/reset").write_text('{"epoch": 1}')
        assert growing.keys(2) == [line for _ in range(2) for line in lines(run("next", "other"))]


def add_texts(data, shard):
    """Texts of 3, 5, 2 and 4 tokens: of 5 at most, each is a batch."""
    data.mkdir(exist_ok=True)
    write_prefix(data / shard, UINT16, [np.arange(length, dtype=np.uint16) for length in (3, 5, 2, 4)])


def test_batches_by_length_go_on_over_a_dataset_that_has_grown(touchfs, tmp_path):
    data, state = tmp_path / "d", ["--state-dir", tmp_path / "state"]

    def run(command, *arguments):
        return touchfs("iterator", command, data, "train", *arguments, *state)

    def iterate(*arguments):
        done = touchfs("iterate", data, "--max-tokens", "5", *arguments)
        return [os.path.splitext(path)[0][7:] for path in done.stdout.decode().split()], done.stderr.decode()

    add_texts(data, "b")
    assert not run("create", "--spec", '{"max_tokens": 5, "output": "key"}').stderr
    came, said = iterate("--take", "1", "--save-state", tmp_path / "one")
    assert (run("next").stdout, run("restore", "--extend").returncode, run("next").stdout) == (
        *(b"00000000\n", 0),
        b"00000001\n",
    )
    assert (came, said) == (["b/00000000"], "")
    add_texts(data, "a")
    assert b"`touchfs iterator restore`" in run("next").stderr
    done = run("restore", "--extend")
    assert done.stderr == b"touchfs: 2 batches of the old order left, then 4 new batches\n"
    assert [run("next").stdout[:-1] for _ in range(7)] == [b"0000000%d" % number for number in (2, 3, 0, 1, 2, 3)] + [
        b""
    ]
    rest, said = iterate("--resume", tmp_path / "one", "--extend", "--take", "4", "--save-state", tmp_path / "two")
    assert said.splitlines()[-1] == "touchfs: 3 batches of the old order left, then 4 new batches"
    assert rest == [f"b/0000000{number}" for number in (1, 2, 3)] + ["a/00000000"]
    assert iterate("--until", tmp_path / "two")[0] == came + rest
    assert iterate("--resume", tmp_path / "two")[0] == [f"a/0000000{number}" for number in (1, 2, 3)]
    for suffix in (".bin", ".idx"):
        (data / f"b{suffix}").unlink()
    _, said = iterate("--resume", tmp_path / "two", "--extend")
    assert (
        "has 4 samples of shards that are gone" in said and "put these shards back, or begin without the state" in said
    )


def test_what_cannot_go_on_over_a_dataset_that_has_grown_says_so(touchfs, tmp_path):
    data, state = tmp_path / "d", ["--state-dir", tmp_path / "state"]

    def run(command, *arguments):
        return touchfs("iterator", command, data, "train", *arguments, *state)

    add_texts(data, "a")
    spec = {"mux": [{}, {}], "weights": [1, 1], "by": "tokens", "output": "key"}
    assert not run("create", "--spec", json.dumps(spec)).stderr
    assert (run("next").stdout, run("restore", "--extend").returncode, run("next").stdout) == (
        *(b"00000000\n", 0),
        b"00000000\n",
    )
    add_texts(data, "b")
    said = run("next").stderr
    assert b"put the old one back, or restart by writing 1 or" in said and b"--extend" not in said
    assert b"follows from the lengths of all that has come, and its sources" in run("restore", "--extend").stderr


@pytest.mark.parametrize("is_mounted", [False, True])
def test_specs_name_only_lists_that_were_given(shards, touchfs, text, tmp_path, is_mounted):
    chosen = [json.loads(line)["key"] for line in text("iterate", shards, "--format", "json").splitlines()[2:5]]
    (tmp_path / "ids.txt").write_text("\n".join(chosen))
    given = ["--ids", f"good={tmp_path}/ids.txt", "--state-dir", tmp_path / "state"]
    place, options = shards, given
    if is_mounted:
        place, options = tmp_path / "mnt", []
        done = touchfs("mount", shards, place, *given)
        assert done.returncode == 0, done.stderr
        refused = touchfs("iterator", "list", place, *given)
        assert b"a mount has the lists of ids that it was mounted with" in refused.stderr
    try:
        spec = {"where": "key in @good", "output": "key", "batch": 9}
        assert lines(touchfs("iterator", "create", place, "train", "--spec", json.dumps(spec), *options)) == []
        if is_mounted:  # it has the ids that it was given
            (tmp_path / "ids.txt").unlink()
        assert lines(touchfs("iterator", "next", place, "train", *options)) == chosen
        spec = json.dumps({"where": f"key in @{tmp_path}/ids.txt"})
        refused = said(touchfs("iterator", "create", place, "other", "--spec", spec, *options), 2)
        assert "is no list that --ids NAME=FILE has given, and there are @good" in refused
    finally:
        if is_mounted:
            subprocess.run(["fusermount3", "-u", "-z", place], check=True)
