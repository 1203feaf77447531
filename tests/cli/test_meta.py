"""`touchfs meta`: annotations out of a dataset and in again, as a user does it."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command import TOUCHFS
from megatron import write_prefix
from speech import SENTENCES
from touchnet import INT16, UINT8, write_shard


@pytest.fixture
def own(shards, here):
    shutil.copytree(shards, here / "own")
    Path("own/data.list").write_text("".join(f"own/00000000{i} audio+metainfo\n" for i in (2, 0, 1)))
    return here / "own"


@pytest.fixture
def fails(touchfs):
    def run(*arguments, status=1, **options):
        done = touchfs("meta", *arguments, **with_input(options))
        assert done.returncode == status, done
        line = done.stderr.decode()
        assert line.startswith("touchfs") and line.endswith("\n") and line.count("\n") == 1, line
        return line

    return run


def inodes(place):
    return {os.fspath(path.relative_to(place)): path.stat().st_ino for path in place.rglob("*")}


def with_input(options):
    return options | {"stdin": None} if "input" in options else options


def put(text, lines, *options, source="own"):
    lines = "".join(f"{line}\n" for line in lines).encode()
    return text("meta", "put", *options, source, **with_input({"input": lines}))


def test_get_writes_a_line_a_sample_in_dataset_order(own, text):
    lines = text("meta", "get", "own").split("\n")
    assert [json.loads(line) for line in lines] == [
        sentence | {"sample_rate": 16000} for sentence in SENTENCES[8:] + SENTENCES[:8]
    ]
    packed = b"".join((own / f"00000000{i}" / "metainfo.bin").read_bytes() for i in (2, 0, 1))
    assert "".join(lines).encode() == packed
    assert text("meta", "get", "own/000000000").split("\n") == lines[2:6]


def test_a_pipe_from_get_to_put(own, here):
    def pipe(edit):
        command = f"{TOUCHFS} meta get own | {edit} | {TOUCHFS} meta put --jobs 1 own"
        done = subprocess.run(["bash", "-c", command], cwd=here, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout

    before = inodes(own)
    assert pipe("cat") == "own: 0 samples changed in 0 shards\n"
    assert inodes(own) == before
    assert pipe("""sed '4s/"txt": "/&New! /'""") == "own: 1 sample changed in 1 shard\n"
    assert {name for name, inode in inodes(own).items() if inode != before[name]} == {
        "000000000",
        "000000000/metainfo.bin",
        "000000000/metainfo.idx",
    }


def test_a_copy_whose_list_names_the_original(own, text, fails):
    """Who copies a dataset to edit the copy does not expect that the original changes."""
    shutil.copytree("own", "copy")
    lines = text("meta", "get", "own").replace("Good morning", "Good evening")
    line = fails("put", "copy", status=2, input=lines.encode())
    assert (
        "copy: its data.list names own/000000002, which is elsewhere: fix it, or name the list to change that" in line
    )
    assert put(text, lines.splitlines(), source="copy/data.list") == "copy/data.list: 1 sample changed in 1 shard"
    Path("copy/data.list").write_text("".join(f"copy/00000000{i} audio+metainfo\n" for i in (2, 0, 1)))
    os.rename("copy/000000002", "moved")
    os.symlink("../moved", "copy/000000002")  # a link in the copy belongs to it
    assert put(text, lines.splitlines(), source="copy") == "copy: 1 sample changed in 1 shard"


def test_what_was_put_is_shown(own, text):
    assert text("ls", "own:shards/000000000")
    lines = [json.loads(line) for line in text("meta", "get", "own").split("\n")]
    for line in lines:
        line["txt"] = f"«{line['txt']}»"
    assert put(text, [json.dumps(line, ensure_ascii=False) for line in reversed(lines)]) == (
        "own: 10 samples changed in 3 shards"
    )
    assert text("cat", f"own:shards/000000000/{SENTENCES[0]['key']}.txt") == f"«{SENTENCES[0]['txt']}»"


def test_unknown_and_missing(own, text, fails):
    line = json.dumps({"key": SENTENCES[0]["key"], "txt": "new"})
    before = inodes(own)
    told = fails("put", "own", input=f'{line}\n{{"key": "no\\nsuch"}}\n'.encode())
    assert told.startswith(r"touchfs: lines for no sample: 1, first line 2 with the key 'no\nsuch'; ")
    told = fails("put", "own", input=f"{line}\n".encode())
    assert told.startswith("touchfs: own/000000002: samples without a line: 9, first sample 0; ")
    assert fails("put", "own", input=b"").startswith("touchfs: own/000000002: samples without a line: 10")
    assert fails("put", "own", input=b"{}\n\n{}").startswith("touchfs: line 2: metainfo is not JSON")
    assert inodes(own) == before
    assert put(text, [line, "{}"], "--ignore-unknown", "--keep-missing") == (
        "own: 1 sample changed in 1 shard, 1 line ignored, 9 samples without a line"
    )
    assert line in text("meta", "get", "own").split("\n")


def test_sources_without_metainfo(here, fails):
    write_shard(here / "audio", audio=(INT16, [b"ab"]))
    (here / "megatron").mkdir()
    write_prefix(here / "megatron" / "corpus", UINT8, [np.array([1, 2], np.uint8)])
    for command in ("get", "put"):
        for source, shard in (("audio", "audio"), ("megatron", "megatron/corpus.idx")):
            told = fails(command, source, input=b"{}\n")
            assert told == f"touchfs: {shard}: no metainfo.idx here: only TouchNet shards have annotations\n"
        assert "nosuch: no such file or directory" in fails(command, "nosuch")


def test_a_shard_of_early_touchnet(here, text):
    write_shard(here / "old", pair_audio=(INT16, [b"ab"]), pair_text=(UINT8, ['{"key": "ü"}'.encode()]))
    assert text("meta", "get", "old") == '{"key": "ü"}'
    assert put(text, ['{"key": "ü", "n": 1}'], source="old") == "old: 1 sample changed in 1 shard"
    assert (here / "old" / "pair_text.bin").read_bytes() == '{"key": "ü", "n": 1}'.encode()


def test_a_sample_that_is_no_object(here, touchfs):
    write_shard(here / "bad", metainfo=(UINT8, [b'{"key": "a"}', b"[]", b"{}"]))
    done = touchfs("meta", "get", "bad")
    assert (done.returncode, done.stdout) == (1, b'{"key": "a"}\n')
    assert done.stderr == b"touchfs: bad/metainfo.bin: sample 1: metainfo is not a JSON object (sample '00000001')\n"


def test_two_at_once(own, touchfs, fails):
    lines = touchfs("meta", "get", "own").stdout
    descriptor = os.open(own, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert "another `touchfs meta put` is at work here" in fails("put", "own", input=lines, status=2)
    os.close(descriptor)
    assert touchfs("meta", "put", "own", **with_input({"input": lines})).returncode == 0


def test_no_stdin_at_all(own, here):
    done = subprocess.run(
        ["bash", "-c", f"{TOUCHFS} meta put own <&-"], cwd=here, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "stdin is closed" in done.stderr) == (2, True)


def test_a_reader_that_has_seen_enough(here):
    write_shard(here / "large", metainfo=(UINT8, [b'{"n": %d}' % i for i in range(50_000)]))
    command = f"{TOUCHFS} meta get large | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=here, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ('{"n": 0}\n1\n', "")
