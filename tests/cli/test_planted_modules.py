"""Nothing that lies in the current directory or the dataset's is ever run."""

import gzip
import os
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest
from command import INSTALLED
from speech import SPEECH
from waiting import wait_until

LINES = b"".join(b'{"id": "line-%d"}\n' % number for number in range(50))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A directory with a module of each name that is imported anywhere, and the file that it writes to if it is run."""
    place = tmp_path_factory.mktemp("planted")
    (place / "modules").mkdir()
    ours = {"sitecustomize", "touchfs", "touchfs_mount", "usercustomize"}
    for name in (sys.stdlib_module_names | packages_distributions().keys()) - {"__main__"} | ours:
        (place / "modules" / f"{name}.py").write_text(f"open({str(place / 'run')!r}, 'a').write(__name__ + ' ')\n")
    return place / "modules", place / "run"


@pytest.fixture
def here(tmp_path, monkeypatch, planted):
    """A dataset, which is the current directory, with these modules in both."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.jsonl.gz").write_bytes(gzip.compress(LINES))
    (data / "b.jsonl").write_bytes(LINES)
    modules, run = planted
    for directory in (tmp_path, data):
        shutil.copytree(modules, directory, copy_function=os.link, dirs_exist_ok=True)
    yield tmp_path
    assert not run.exists(), run.read_text()


def run(*arguments, status=0, **options):
    done = subprocess.run([INSTALLED, *map(str, arguments)], capture_output=True, check=False, timeout=300, **options)
    assert done.returncode == status, done.stderr.decode()
    return done.stdout


def test_by_no_command(here):
    """Nor by the processes that it starts."""
    run("index", "--force", "--jobs", "2", ".", cwd=here / "data")
    run("cat", "data:shards/b/line-7.json")
    run("pack", "touchnet", SPEECH / "speech.jsonl", "shards", "--num-utt-per-shard", "4", "--num-workers", "2")


@pytest.mark.variant
def test_by_none_of_others(here):
    run("iterate", "data")
    run("index", "jsonl", "--jobs", "2", "data/b.jsonl", "data/b.jsonl")
    run("pack", "touchnet", SPEECH / "speech.jsonl", "shards", "--num-utt-per-shard", "4", "--num-workers", "1")
    run("meta", "put", "shards", input=run("meta", "get", "shards").replace(b"Good", b"Bad"))
    run("convert", "shards", "shar", "--to", "shar", "--jobs", "1")


@pytest.mark.parametrize("foreground", [False, pytest.param(True, marks=pytest.mark.variant)])
def test_by_no_process_of_a_mount(here, foreground):
    source, mnt = here / "data", here / "mnt"
    arguments = [INSTALLED, "mount", *(["-f"] if foreground else []), source, mnt]
    with subprocess.Popen(arguments, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as daemon:
        try:
            assert b"is mounted" in daemon.stdout.readline()
            wait_until((mnt / "shards" / "a" / "line-7.json").exists)
            assert (mnt / "shards" / "a" / "line-7.json").read_bytes() == b'{"id": "line-7"}\n'
            (mnt / ".touchfs" / "iterators" / "it").mkdir()
            assert (mnt / ".touchfs" / "iterators" / "it" / "next").read_bytes()
            run("iterator", "list", mnt, cwd=source)
            run("reload", mnt, cwd=source)
        finally:
            run("umount", mnt, cwd=source)


def test_by_no_check_of_a_node(here, tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "check.py"
    script.write_text(
        "from touchfs.node import LazyIndexedManifestIterator\n"
        "from touchfs.testing import check_restore\n"
        "def make():\n"
        "    return LazyIndexedManifestIterator('b.jsonl')\n"
        "if __name__ == '__main__':\n"
        "    check_restore(make, fresh_process=True)\n"
    )
    (here / "b.jsonl").write_bytes(LINES[: LINES.index(b"line-3")].rpartition(b"{")[0])
    subprocess.run([sys.executable, script], check=True, timeout=120)
