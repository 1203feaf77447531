"""What goes wrong is one line that says what and where, and an exit status: 1, or 2 where the command is wrong."""

import gzip
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from command import TOUCHFS
from tars import write_tar

from touchfs.containers.touchnet.writer import TouchNetWriter


def one_line(done, status):
    assert done.returncode == status, done
    line = done.stderr.decode()
    assert line.startswith("touchfs") and line.endswith("\n") and line.count("\n") == 1, line
    assert done.stdout == b""
    return line


@pytest.fixture
def mixed(here, shards):
    (here / "shards").symlink_to(shards)
    (here / "empty").mkdir()
    Path("text").write_text("hello\n")
    return here


CASES = [
    (["ls", "nosuch"], 1, "nosuch: no such file or directory"),
    (["info", "nosuch"], 1, "nosuch: no such file or directory"),
    (["index", "nosuch"], 1, "nosuch: no such file or directory"),
    (["cat", "nosuch:shards/x"], 1, "nosuch: no such file or directory"),
    (["ls", ":shards"], 1, ":shards: no such file or directory"),
    (["ls", ""], 2, "the path of the dataset is empty: is a variable unset?"),
    (
        ["ls", "empty"],
        1,
        "empty: no shards here: touchfs reads .bin/.idx, .tar and .jsonl (compressed too), .arrow",
    ),
    (["info", "text"], 1, "text: is not a dataset: line 1 is not `SHARD_DIR DATATYPES`"),
    (["info", "http://127.0.0.1:1/x", "--timeout", "0.1"], 1, "http://127.0.0.1:1/x: the store does not answer"),
    (
        ["cat", "http://127.0.0.1:1/x.tar:shards/b", "--timeout", "0.1"],
        1,
        "http://127.0.0.1:1/x.tar: the store does not",
    ),
    (["cat", "http://[::1]:1/x.tar:shards/b", "--timeout", "0.1"], 1, "http://[::1]:1/x.tar: the store does not"),
    (["ls", "http://me:secret@x.org/x.tar"], 2, "http://x.org/x.tar: a URL must not hold a user or a password"),
    (["ls", "file:///x.tar"], 2, "file:///x.tar: this is a local path: name it without file://"),
    (["ls", "nosuch://x:shards"], 1, "nosuch://x: "),
    (
        ["convert", "shards", "out"],
        2,
        "Choose from: touchnet, tar, zip, shar, arrow, lance, parquet. Try `touchfs convert --help`.",
    ),
    (["convert", "oci://x", "out", "--to", "tar"], 1, "oci://x: Install ocifs"),
    (["info", ""], 2, "the path of the dataset is empty: is a variable unset?"),
    (["mount", "shards", ""], 2, "touchfs mount: the mount point is empty: is a variable unset?"),
    (["ls", "shards:nosuch"], 1, "shards:nosuch: there is no 'nosuch' in /; `touchfs ls shards` shows what there is"),
    (
        ["cat", "shards:shards/000000000/no\nsuch.wav"],
        1,
        r"there is no 'no\nsuch.wav' in /shards/000000000; `touchfs ls",
    ),
    (["stat", "shards:shards/000000000/numbers.wav/x"], 1, "/shards/000000000/numbers.wav is a file"),
    (["cat", "shards"], 2, "shards: is a directory: name a file in it"),
    (["cat", "shards:shards/000000000"], 2, "shards:shards/000000000: is a directory: name a file in it"),
    (["cp", "shards:shards", "x"], 2, "shards:shards: is a directory: copy it with -r"),
    (["cp", "shards:shards/000000000/numbers.wav", "no/x"], 1, "no/x: cannot be written: No such file or directory"),
    (["cp", "-r", "shards:shards/000000000", "text"], 1, "text: File exists"),
    (["cp", "shards:shards/000000000/numbers.wav", "text/x"], 1, "text/x: cannot be written: Not a directory"),
    (["pack", "touchnet", "nosuch.jsonl", "out"], 1, "nosuch.jsonl: no such file"),
    (
        ["pack", "tar", "shards", "out"],
        2,
        "shards: is a directory: name a list of its files, DATA.jsonl; `touchfs pack",
    ),
    (["ls", "--features", "text", "shards"], 1, "text: features are not JSON"),
    (["pack", "touchnet", "text", "out"], 1, "text: line 1: not JSON"),
    (["umount", "empty"], 1, "empty: touchfs is not mounted here"),
    (["ls", "--nosuch"], 2, "touchfs ls: No such option '--nosuch'. Try `touchfs ls --help`."),
    (["--nosuch"], 2, "touchfs: No such option '--nosuch'. Try `touchfs --help`."),
    (["nosuch"], 2, "touchfs: No such command 'nosuch'. Try `touchfs --help`."),
    (["ls"], 2, "touchfs ls: Missing argument 'DATASET[:PATH]…'. Try `touchfs ls --help`."),
    (["pack", "arow"], 2, "touchfs pack: No such command 'arow'. Did you mean 'arrow'? Try `touchfs pack --help`."),
    (["cp", "shards:x"], 2, "touchfs cp: Missing argument 'DESTINATION'. Try `touchfs cp --help`."),
    (
        ["pack", "touchnet"],
        2,
        "touchfs pack touchnet: Missing argument 'DATA.jsonl'. Try `touchfs pack touchnet --help`.",
    ),
    (["index", "--jobs", "0", "shards"], 2, "touchfs index: Invalid value for '--jobs': 0 is not in the range"),
    (["iterate", "shards", "--shuffle", "abc"], 2, "Invalid value for '--shuffle': 'abc' is not a whole number. Try `"),
    (["iterate", "shards", "--take", "x"], 2, "Invalid value for '--take': 'x' is not a whole number. Try `"),
    (["iterate", "shards", "--where", "a = 1"], 2, "where, column 3: expected an operator (== != < <= > >= in"),
    (["iterate", "shards", "--where", "a = 1"], 2, "not '=': write == (at byte 2)"),
    (["iterate", "shards", "--where", "a > 1 && b > 2"], 2, "not '&': write and (at byte 6)"),
    (["iterate", "shards", "--where", "a > 1 || b > 2"], 2, "not '|': write or (at byte 6)"),
    (["mount", "shards", "m", "-o", "ro,env.=1"], 2, "touchfs mount: -o env. needs a name: env.NAME=VALUE."),
]


@pytest.mark.parametrize(("arguments", "status", "told"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_errors(touchfs, mixed, arguments, status, told):
    assert told in one_line(touchfs(*arguments), status)
    assert sorted({*os.listdir(mixed)} - {"out"}) == ["empty", "shards", "text"]


def test_a_pattern_that_the_shell_expanded_is_quoted_as_the_error_says(touchfs, text, here):
    for name in ("a", "b", "c"):
        write_tar(here / "my data" / f"{name}.tar", {"x.txt": b"x"})
    tars = [f"my data/{name}.tar" for name in "abc"]
    line = one_line(touchfs("stat", *tars), 2)
    told = "several datasets: name the directory, or quote a pattern of the shards, as 'my data/*.tar'"
    assert line == f"touchfs stat: {told}. Try `touchfs stat --help`.\n"
    assert text("ls", "my data/*.tar:shards").split() == ["a/", "b/", "c/"]


def test_the_error_of_another_seed_names_the_seed_to_use(touchfs, here, shards):
    assert touchfs("iterate", shards, "--shuffle", "7", "--take", "2", "--save-state", "state.json").returncode == 0
    line = one_line(touchfs("iterate", shards, "--shuffle", "8", "--resume", "state.json"), 2)
    assert line == "touchfs: state.json: state was saved with seed = 7, here it is 8: use seed 7\n"
    assert touchfs("iterate", shards, "--shuffle", "7", "--resume", "state.json").returncode == 0


def test_an_output_that_is_not_empty_is_told_with_what_it_holds(touchfs, here, shards):
    (here / "full").mkdir()
    (here / "full" / "my file").touch()
    line = one_line(touchfs("convert", shards, "full", "--to", "tar"), 2)
    assert line == "touchfs: full: already holds 'my file': remove it, or choose another output\n"


FILES = [
    ("x.pqt", b"PAR1\0\0PAR1", "a Parquet file, but its name does not end in .parquet"),
    ("x.arrows", b"ARROW1\0\0", "an Arrow file, but its name does not end in .arrow"),
    ("x.arrows", b"\xff\xff\xff\xff\x10\0\0\0", "an Arrow stream"),
    ("x.zip", b"PK\x03\x04", "a zip archive"),
    ("x.csv", b"path,text\na.wav,hello\n", "a CSV file"),
    ("x.tsv", b"a audio\n", "a TSV file"),
    ("README.md", b"# speech corpus\n\naudio metainfo\n", "a Markdown text"),
    ("x.json", b"[]", "JSON; JSON lines are called .jsonl"),
    ("x", b' {"key": 1}\n', "JSON; JSON lines are called .jsonl"),
    ("x.backup", b"a" + bytes(256) + b"ustar\0", "a tar, but its name does not end in .tar"),
    ("x.bin", b"\1\2", "a .bin without its .idx"),
    ("x.wav", b"RIFF\0\0\0\0WAVE", "a single file of the kind .wav, not a shard: `touchfs pack` makes shards"),
    ("x", b"\1\0\2", "binary data in an unknown format"),
]


@pytest.mark.parametrize(("name", "data", "what"), FILES)
def test_a_file_of_another_format_is_named(touchfs, here, name, data, what):
    Path(name).write_bytes(data)
    line = one_line(touchfs("info", name), 1)
    assert line.startswith(f"touchfs: {here / name}: is {what}")
    assert "touchfs reads .bin/.idx, .tar and .jsonl (compressed too), .arrow, .parquet, directories of them, " in line


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        (
            "x.tar",
            gzip.compress(b"\0" * 1024, mtime=0),
            "compressed by gzip, but its name does not end in .tar.gz or .jsonl.gz",
        ),
        ("x.tar", b"PK\x05\x06" + bytes(18), "a zip archive, but its name does not end in .zip"),
        (
            "x.jsonl",
            gzip.compress(b"{}\n", mtime=0),
            "compressed by gzip, but its name does not end in .tar.gz or .jsonl.gz",
        ),
        ("x.parquet", b"ARROW1\0\0" * 9, "an Arrow file, but its name does not end in .arrow"),
        ("x.tar", b"SQLite format 3\0" * 99, "an SQLite database"),
    ],
)
def test_a_shard_with_the_name_of_another_kind_says_what_it_is(touchfs, here, name, data, what):
    Path(name).write_bytes(data)
    done = touchfs("info", name)
    assert done.returncode == 1 and done.stderr == b""
    assert f"shard x: is {what}" in done.stdout.decode()
    assert f": is {what}" in one_line(touchfs("mount", name, "m"), 13)


@pytest.mark.parametrize("data", ["touchfs mounts\n", "# audio corpus\n", "a,b\n", "", "two words\nx audio\n"])
def test_only_text_that_looks_like_a_list_is_tried_as_one(touchfs, here, data):
    Path("x").write_text(data)
    assert "x: is not a dataset: line 1 is not `SHARD_DIR DATATYPES`; touchfs reads" in one_line(
        touchfs("info", "x"), 1
    )


def test_a_list_may_have_any_name(text, here, shards):
    for name in ("x", "train.txt", "train.list"):
        Path(name).write_text(f"\n{shards}/000000000 audio+metainfo\n")
        assert text("ls", f"{name}:shards") == "000000000/"


@pytest.mark.parametrize(("name", "others"), [("a.wav", ["a.json", "a.srt"]), ("a.JPG", ["a.txt"])])
def test_loose_files_become_a_shard_as_the_error_says(touchfs, text, here, name, others):
    Path("my data").mkdir()
    for each in (name, *others):
        Path("my data", each).write_bytes(b"{}")
    line = one_line(touchfs("info", "my data"), 1)
    assert f"no shards here, but loose files, as {name}: `tar -cf" in line
    subprocess.run(line.split("`")[1], shell=True, check=True)
    assert {name, *others} <= {*text("ls", "my data.tar:shards/my data").split()}


def test_a_directory_of_another_format_names_it(touchfs, here):
    Path("d").mkdir()
    for name in ("notes.txt", "train-00000.tfrecord"):
        (Path("d") / name).touch()
    told = "and a data.list; 2 files left out: notes.txt (not a shard); train-00000.tfrecord (a TFRecord file)"
    assert told in one_line(touchfs("info", "d"), 1)


def test_a_path_that_looks_remote_is_one_where_it_is_there(text, here, shards):
    Path("s3:").mkdir()
    Path("s3:/x").symlink_to(shards)
    assert "10" in text("info", "s3://x")


def test_debug_shows_where_an_error_comes_from(touchfs, here):
    done = touchfs("--debug", "ls", "nosuch")
    assert done.returncode == 1
    assert done.stderr.startswith(b"Traceback") and b"dataset_argument.py" in done.stderr
    assert done.stderr.rstrip().endswith(b"/nosuch: no such file or directory")


def test_a_shard_that_has_become_shorter_gives_an_error_and_no_other_bytes(touchfs, here):
    with TouchNetWriter("s", {"audio": np.dtype("<i2")}) as writer:
        writer.add({"audio": b"ab" * 1000})
    location = "s:shards/s/00000000.pcm"
    assert touchfs("cat", location).stdout == b"ab" * 1000
    os.truncate("s/audio.bin", 100)
    assert "there is no '00000000.pcm'" in one_line(touchfs("cat", location), 1)


def shell(command, here):
    environment = os.environ | {"PATH": f"{TOUCHFS.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command], cwd=here, env=environment, capture_output=True, text=True, check=False
    )


def test_a_reader_that_has_seen_enough(mixed):
    """More lines than a pipe holds."""
    with TouchNetWriter("large", {"audio": np.dtype("<i2")}) as writer:
        writer.add({"audio": b"a\n" * 1_000_000})
        for _ in range(5000):
            writer.add({"audio": b"ab"})
    for command in ("ls -l large:shards/large", "cat large:shards/large/00000000.pcm"):
        done = shell(f"touchfs {command} | head -1; echo ${{PIPESTATUS[0]}}", mixed)
        assert done.stderr == ""
        assert done.stdout.splitlines()[1:] == ["1"]


def test_a_full_disk(mixed):
    for command in ("ls shards", "cat shards:shards/000000000/numbers.wav", "info shards", "--help"):
        done = shell(f"touchfs {command} >/dev/full", mixed)
        assert (done.returncode, done.stderr) == (1, "touchfs: No space left on device\n")
    done = shell("touchfs cp shards:shards/000000000/numbers.wav /dev/full", mixed)
    assert (done.returncode, done.stderr) == (1, "touchfs: /dev/full: cannot be written: No space left on device\n")


def test_no_stdout_at_all(mixed):
    done = shell("touchfs ls shards >&-; touchfs index shards >&-", mixed)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_directory_of_temporary_files_with_a_long_name(touchfs, here, monkeypatch):
    """A pool of processes has sockets there."""
    for name in ("a", "b"):
        write_tar(here / "in" / f"{name}.tar", {"x.txt": b"x"})
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        for length, status in ((75, 0), (76, 2)):
            temporary = Path(place, "t" * (length - len(place) - 1))
            temporary.mkdir()
            monkeypatch.setenv("TMPDIR", str(temporary))
            done = touchfs("convert", "in", f"out{length}", "--to", "tar", "--jobs", "2")
            assert done.returncode == status, done.stderr
            assert (b"choose a shorter one, as TMPDIR=/tmp" in done.stderr) == bool(status)
