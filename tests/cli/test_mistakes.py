"""What a newcomer types wrong is told in one line, which says what to type instead, or just works.

test_errors.py has what is wrong with files and their names, test_help.py commands that there are not, and
tests/mount/test_mount_point.py mount points.
"""

import os
import re

import pytest
from s3_server import s3_server
from tars import write_tar

import touchfs as library


@pytest.fixture
def pictures(here):
    """A tar as of WebDataset's TarWriter, of two samples."""
    samples = {"a": (b"1", b'{"score": 0.5}'), "b": (b"3", b'{"score": 1}')}
    files = {
        f"{key}.{extension}": data
        for key, (label, fields) in samples.items()
        for extension, data in (("cls", label), ("jpg", b"\xff\xd8\xff"), ("json", fields))
    }
    write_tar(here / "pictures.tar", files)
    return here


MISTAKES = [
    ("iterator create pictures.tar train --spec {bad", 2, "--spec: not JSON: Expecting property name"),
    ("iterator create pictures.tar train --spec {shuffle:7}", 2, "enclosed in double quotes"),
    ("iterate pictures.tar --where caption==3", 2, "where: no sample has the field caption: name one of the .json, or"),
    ("iterate pictures.tar --where score=='high'", 2, "where: score is a number, never a text: no sample can match"),
    ("iterate pictures.tar --where key@ids.txt", 2, "where, column 4: expected an operator"),
    ("convert pictures.tar out --to webdatset", 2, "'webdatset' is not one of 'touchnet', 'tar', 'zip', 'shar',"),
    ("interleave pictures.tar out --to webdataset", 1, "pictures.tar: nothing interleaved was found: no .json in it"),
    ("stat pictures.tar other", 2, "stat: takes one DATASET[:PATH]: run it for each, or name a directory of all. Try"),
    ("meta get one two", 2, "meta get: takes one DATASET: run it for each, or name a directory of all. Try"),
    ("meta put one two three", 2, "meta put: takes one DATASET: run it for each, or name a directory of all. Try"),
    ("interleave one two out", 2, "interleave: takes one IN: run it for each, or name a directory of all. Try"),
    ("cp pictures.tar:a pictures.tar:b out", 2, "cp: takes one DATASET:PATH: run it for each, or name a directory"),
    ("meta get pictures.tar", 1, "pictures.tar: no metainfo.idx here: only TouchNet shards have annotations"),
    ("manifest pictures.tar --kind nemo", 1, "no sample has audio, so nemo has nothing to list: use --kind filelist"),
    ("cat pictures.tar:shards/pictures/a.png", 1, "there is no 'a.png' in /shards/pictures; `touchfs ls pictures.tar"),
    ("cat pictures.tar:by-key/a.png", 1, "there is no 'a.png' in /by-key"),
    ("mount pictures.tar", 2, "mount: Missing argument 'MOUNTPOINT'. Try `touchfs mount --help`."),
    ("reload nowhere", 1, "nowhere: touchfs is not mounted here"),
]


@pytest.mark.parametrize(("typed", "status", "told"), MISTAKES, ids=[typed for typed, *_ in MISTAKES])
def test_a_mistake_is_told(touchfs, pictures, typed, status, told):
    done = touchfs(*typed.split())
    line = done.stderr.decode()
    assert (done.returncode, line.count("\n")) == (status, 1), done
    assert line.startswith("touchfs") and told in line
    assert not os.path.exists("out") or not os.listdir("out")


def test_other_names_of_a_kind_and_classes_of_webdataset_work(text, pictures):
    assert text("iterate", "pictures.tar", "--where", "cls == 3", "--extension", "jpg") == "shards/pictures/b.jpg"
    for name in ("wds", "webdataset", "tar"):
        assert text("convert", "pictures.tar", name, "--to", name) == f"{name}: 1 shard, 2 samples"


def test_a_bucket_that_is_missing_is_told_by_all(touchfs, here, monkeypatch):
    missing = {"nosuch/train": "no such bucket", "data/train": "no such file or directory"}
    commands = [
        (command, "nosuch/train") for command in ("info", "ls", "iterate", "index", "verify", "prefetch", "mount")
    ]
    with s3_server(monkeypatch):
        for command, name in (*commands, ("info", "data/train"), ("mount", "data/train")):
            mountpoint = ["mnt"] if command == "mount" else []
            done = touchfs(command, f"s3://{name}", *mountpoint)
            assert (done.returncode, done.stdout) == (11 if mountpoint else 1, b""), command
            assert done.stderr.decode() == f"touchfs: s3://{name}: {missing[name]}\n"


def test_python_names_what_there_is(pictures):
    samples = library.open("pictures.tar")
    with pytest.raises(TypeError, match="where takes an expression as text, not a function: filter"):
        samples.where(lambda sample: True)
    with pytest.raises(KeyError, match=re.escape("no file .png: there are .cls, .jpg, .json")):
        samples[0]["png"]
    with pytest.raises(KeyError, match="no sample has the key 'c'"):
        samples["c"]
