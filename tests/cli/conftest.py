"""The command as a user runs it: a process, its output, its status. And shards that it made."""

import subprocess

import pytest
from command import TOUCHFS, in_one_process
from speech import SPEECH


@pytest.fixture(scope="session")
def touchfs():
    def run(*arguments, **options):
        options = {"capture_output": True, "stdin": subprocess.DEVNULL, "timeout": 300} | options
        return subprocess.run([TOUCHFS, *in_one_process(*arguments)], check=False, **options)

    return run


@pytest.fixture(scope="session")
def shards(touchfs, tmp_path_factory):
    """Three shards of the ten sentences, and their data.list."""
    place = tmp_path_factory.mktemp("speech") / "shards"
    done = touchfs("pack", "touchnet", SPEECH / "speech.jsonl", place, "--num-utt-per-shard", "4")
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
def run(touchfs):
    """Run a command with an exit status, and return what it printed."""

    def run(*arguments: object, status: int = 0) -> str:
        done = touchfs(*map(str, arguments))
        assert done.returncode == status, done
        return (done.stdout + done.stderr).decode()

    return run
