"""The command as a user runs it: a process, its output, its status. And shards that it made."""

import subprocess

import pytest
from command import TOUCHFS
from speech import SPEECH

# Commands that start a process for each CPU. That takes a second of processor, so tests of several processes say how
# many. The examples of the help and of pages do not use the fixture, and show what happens by default.
PARALLEL = ("checksum", "convert", "index", "interleave", "meta put", "pack shar", "pack tar", "pack touch", "verify")
SAID = {"--jobs", "--num-workers", "--workers", "--dask", "--help", "-h"}


@pytest.fixture(scope="session")
def touchfs():
    def run(*arguments, **options):
        named = {" ".join(map(str, arguments[:words])) for words in (1, 2)}
        if named.intersection(PARALLEL) and not SAID.intersection(map(str, arguments)):
            arguments += ("--jobs", "1")
        options = {"capture_output": True, "stdin": subprocess.DEVNULL, "timeout": 300} | options
        return subprocess.run([TOUCHFS, *arguments], check=False, **options)

    return run


@pytest.fixture(scope="session")
def shards(touchfs, tmp_path_factory):
    """Three shards of the ten sentences, and their data.list."""
    place = tmp_path_factory.mktemp("speech") / "shards"
    done = touchfs("pack", "touch", SPEECH / "speech.jsonl", place, "--num-utt-per-shard", "4")
    assert (done.returncode, done.stderr) == (0, b"")
    return place


@pytest.fixture(scope="session")
def text(touchfs):
    """What a command that must succeed writes, without its last line end."""

    def run(*arguments, **options):
        done = touchfs(*arguments, **options)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.decode().removesuffix("\n")

    return run


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
