"""A command whose data cannot be read in part does the rest, says what is missing, and does not exit with 0."""

from __future__ import annotations

import io
import os
import re
import socket
from pathlib import Path

import numpy as np
import pytest
import soundfile
from interleaved_tars import WdsSample, make_wds_tar
from tars import write_tar

TAGS = b"ID3\3\0\0\0\0\0\0"


def sound() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(4000, np.int16), 8000, format="WAV")
    return file.getvalue()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Datasets with a good shard: alone; with one that cannot be served; with one that is cut; with damaged files."""
    place = tmp_path_factory.mktemp("data")
    good = {"a.wav": sound(), "a.txt": b"hi", "a.json": b'{"segments": [{"start": 0, "end": 0.25, "text": "hi"}]}'}
    for name in ("fine", "broken", "cut", "damaged"):
        (place / name).mkdir()
        write_tar(place / name / "good.tar", good)
    (place / "broken/bad.parquet").write_bytes(b"x" * 3000)
    write_tar(place / "cut/cut.tar", {"b.wav": sound(), "c.wav": sound()})
    os.truncate(place / "cut/cut.tar", 12_000)
    write_tar(place / "damaged/bad.tar", {**good, "a.wav": TAGS, "d.json": good["a.json"], "d.mp3": b"?"})
    return place


# The words that an error has, by the dataset; None: the command reads nothing that is damaged.
COMMANDS = {
    "info {}": {"broken": "shard bad: not a Parquet", "cut": "shard cut: member 'c.wav'", "damaged": None},
    "info --json {}": {"broken": "", "cut": "", "damaged": None},
    "index {}": {"broken": "shard bad: not a Parquet", "cut": "shard cut: member 'c.wav'", "damaged": None},
    "cp -r {}:shards out": {"broken": "cannot be served: not a Parq", "cut": "Not all of .*cut.tar", "damaged": None},
    "cp -r {} out": {"broken": "shards/bad/ERROR.txt", "cut": "shards/cut/ERROR.txt", "damaged": "d/0000.wav"},
    "cp -r {}:segments out": {"broken": None, "cut": None, "damaged": "a/0000.wav: it has no sound: it ends after its"},
    "cat {}:segments/bad/a/0000.wav": {"broken": "there is no", "cut": "there is no", "damaged": "it has no sound"},
    "ls -l {}:segments/bad/a": {"broken": "there is no", "cut": "there is no", "damaged": ""},
    "stat {}:segments/bad/a/0000.wav": {"broken": "there is no", "cut": "there is no", "damaged": ""},
    "iterate {}": {"broken": "cannot be served: not a Parq", "cut": "1 of 2 shards with errors", "damaged": None},
    "manifest {} --kind nemo": {"broken": "1 of 2 shards with", "cut": "1 of 2 shards with", "damaged": None},
    "convert {} out --to tar": {"broken": "not a Parquet file", "cut": "member 'c.wav'", "damaged": None},
    "convert {} out --to touchnet": {"broken": "not a Parquet file", "cut": "member 'c.wav'", "damaged": "'a'"},
    "verify {}": {"broken": "not a Parquet file", "cut": "member 'c.wav'", "damaged": None},
    "interleave {} out --to wds": {"broken": "tars and Parquet", "cut": "member 'c.wav'", "damaged": "good.tar: no"},
}


def test_the_page_lists_those_of_mount(text):
    page = (Path(__file__).parent.parent.parent / "docs/operating.md").read_text()
    listed = re.findall(r"^\| (\d\d) \|", page.partition("## Exit statuses")[2].partition("\n## ")[0], re.MULTILINE)
    told = text("mount", "--help").partition("Exit status:")[2].partition("Options:")[0]
    assert listed == sorted(re.findall(r"(?<!\d)\d\d(?= )", told))


def test_a_dataset_that_is_not_there_has_a_status_of_its_own_with_mount_alone(data, here, touchfs):
    """So the page says: 11, 12 and 13 of `mount` are 1 of all others, and an output that exists is 2."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        sources = {11: "missing.tar", 12: f"http://127.0.0.1:{port}/x.tar", 13: data / "broken/bad.parquet"}
        for status, source in sources.items():
            assert touchfs("mount", source, "mnt").returncode == status
            for command in ("info", "iterate", "index", "verify"):
                assert touchfs(command, source).returncode == 1, (command, source)
    assert touchfs("convert", data / "fine", data / "fine", "--to", "tar").returncode == 2
    assert touchfs("umount", "mnt").returncode == touchfs("reload", "mnt").returncode == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_read_is_named_and_is_in_the_exit_status(data, here, touchfs, command):
    for number, (dataset, words) in enumerate(COMMANDS[command].items()):
        arguments = command.replace(" out", f" out{number}").format(data / dataset).split()
        done = touchfs(*arguments)
        said = (done.stderr + done.stdout).decode()
        assert (done.returncode > 0) == (words is not None), (dataset, said)
        assert re.search(words or "", said), (dataset, said)
        assert "Traceback" not in said


def test_interleaving_names_each_file_without_interleaved_samples(here, touchfs):
    write_tar(here / "in/1.tar", {"a.jpg": b"j", "a.json": b'{"caption": "x"}'})
    make_wds_tar(here / "in/2.tar", [WdsSample("k", ["one"], [None])])
    write_tar(here / "in/3.tar", {"b.jpg": b"j"})
    write_tar(here / "in/4.tar", {})
    done = touchfs("interleave", "in", "out", "--to", "parquet")
    assert (done.returncode, done.stdout) == (1, b"out: 2 shards, 1 sample, 2 items\n")
    named = [line.partition(": nothing interleaved was found: ")[0] for line in done.stderr.decode().splitlines()]
    assert named == [f"touchfs: {here}/in/{number}.tar" for number in (1, 3)]
    assert sorted(os.listdir("out")) == ["000001.parquet", "000003.parquet"]
    assert touchfs("convert", "in", "as", "--to", "parquet", "--kind", "interleaved").returncode == 1
