"""Names with control characters: no terminal and no list gets them as they are."""

import json
import os
import re
import shutil
import subprocess

import pytest
from command import TOUCHFS, in_one_process
from speech import SPEECH
from tars import write_tar

EVIL = "a\x1b[31mb\nc\x85d\x9b"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@pytest.fixture
def evil(here):
    """A dataset whose path, shard and keys have them, with a damaged shard in it."""
    source = here / EVIL
    source.mkdir()
    lines = [json.dumps({"id": EVIL + str(i)}) for i in range(3)]
    (source / f"{EVIL}.jsonl").write_text("\n".join(lines) + "\n")
    whole = write_tar(here / "whole.tar", {"a.txt": b"whole"}).read_bytes()
    (source / f"{EVIL}.tar").write_bytes(whole[:1024] + b"damaged" * 1000)
    return source


@pytest.mark.parametrize(
    "arguments",
    [
        ["index", "{}"],
        ["index", "--jobs", "1", "--progress", "plain", "--force", "{}"],
        ["info", "{}"],
        ["info", "--strict", "{}"],
        ["ls", "{}:shards"],
        ["ls", "{}:by-key"],
        ["ls", "-l", "{}"],
        ["ls", "{}:nothing"],
        ["iterate", "{}"],
        ["iterate", "{}", "--select", "nothing"],
        ["convert", "{}", "{}/out", "--to", "tar"],
        ["cat", "{}:shards/nothing"],
        ["storage", "ls"],
        ["mount", "{}", "{}/in"],
        ["reload", "{}"],
        ["umount", "{}"],
    ],
    ids=" ".join,
)
def test_lines_stay_lines(evil, arguments):
    command = [TOUCHFS, *in_one_process(*(each.format(evil) for each in arguments))]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    for text in (done.stdout, done.stderr):
        assert not CONTROL.search(text.decode("utf-8", "surrogateescape")), text
        assert not re.search(rb"(?m)^c", text), "a name broke a line"


def test_the_lists_of_samples_too(evil, text):
    listed = text("ls", f"{evil}:shards").splitlines()
    assert len(listed) == 2
    names = text("ls", f"{evil}:shards/{listed[0].rstrip('/')}").splitlines()
    told = text("stat", f"{evil}:shards/{listed[0]}{names[0]}")
    assert not CONTROL.search(told)
    assert not CONTROL.search("\n".join(names))


def test_a_data_list_too(here, text):
    out = f"out\x1b{EVIL[:4]}"
    text("pack", "touchnet", SPEECH / "speech.jsonl", out)
    assert (here / out / "data.list").read_text() == "000000000 audio+metainfo\n"


def test_a_mount_and_its_log_too(evil, here):
    point = here / f"mnt{EVIL}"
    log = here / "log"
    done = subprocess.run(
        [TOUCHFS, "mount", evil, point, "--log-file", log], capture_output=True, check=False, timeout=300
    )
    try:
        assert done.returncode == 0, done.stderr
        assert not CONTROL.search(done.stdout.decode() + done.stderr.decode())
        (broken,) = (point / "shards").glob("*/ERROR.txt")
        assert not CONTROL.search(broken.read_text())
        for directory, names, files in os.walk(os.fsencode(point / "shards")):
            for name in names + files:
                assert not CONTROL.search(os.fsdecode(name)), directory
        path = next((point / "shards").glob("*/*.json"))
        (evil / f"{EVIL}.jsonl").write_text("")
        with pytest.raises(OSError):
            path.read_bytes()
        assert not CONTROL.search((point / ".touchfs" / "errors").read_text())
        iterator = point / ".touchfs" / "iterators" / "it"
        iterator.mkdir()
        for spec in ({}, {"output": "path"}, {"shuffle": 1}):
            with pytest.raises(OSError):
                (iterator / "spec").write_text(json.dumps(spec))
            reason = (iterator / "error").read_text()
            assert "relpath" in reason and "--path-prefix" in reason
        with pytest.raises(OSError):
            (iterator / "next").read_bytes()
        (iterator / "spec").write_text('{"output": "key"}')
        assert (iterator / "spec").read_text()
    finally:
        subprocess.run(["fusermount3", "-u", "-z", point], check=False)
    assert not CONTROL.search(log.read_text())


def test_relative_paths_and_a_prefix_are_lines(evil, here):
    shutil.copy(SPEECH / "speech.jsonl", here / "plain.jsonl")
    point = here / f"mnt{EVIL}"
    subprocess.run([TOUCHFS, "mount", here / "plain.jsonl", point, "--path-prefix", "/data"], check=True)
    try:
        iterator = point / ".touchfs" / "iterators" / "it"
        iterator.mkdir()
        assert (iterator / "next").read_text().startswith("/data/shards/plain/")
        (iterator / "spec").write_text('{"output": "relpath"}')
        assert (iterator / "next").read_text().startswith("shards/plain/")
    finally:
        subprocess.run(["fusermount3", "-u", "-z", point], check=False)
