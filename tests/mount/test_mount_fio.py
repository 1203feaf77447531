"""fio reads a file that it has written itself, packed into a tar: each block has a checksum that fio verifies."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mounts import Mount

NAME = "pattern.bin"
# In turn as long as a block, and as blocks that the kernel splits and joins.
BLOCK, SIZE = "16k", 4 << 20
ENGINES = ["sync", "psync", "pvsync2", "mmap", "libaio", "io_uring", "posixaio"]
# With and without the page cache, in turn and several at once.
IN_SHORT = {("psync", "0"), ("mmap", "0"), ("io_uring", "0"), ("libaio", "1")}


def fio(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    place = [f"--filename={path}", f"--size={SIZE}", f"--bs={BLOCK}"]
    command = ["fio", "--name=touchfs", *place, "--verify=crc32c", "--output-format=json", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent.anchor)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory) -> Path:
    """A tar of a file by fio, and of one with a wrong byte."""
    place = tmp_path_factory.mktemp("fio")
    written = fio(place / NAME, "--rw=write", "--do_verify=0", "--end_fsync=1")
    assert written.returncode == 0, written.stderr
    shutil.copy(place / NAME, place / "wrong.bin")
    with open(place / "wrong.bin", "r+b") as file:
        file.seek(SIZE // 2 + 5000)
        byte = file.read(1)[0]
        file.seek(SIZE // 2 + 5000)
        file.write(bytes([byte ^ 1]))
    subprocess.run(["tar", "-C", place, "-cf", place / "x.tar", NAME, "wrong.bin"], check=True)
    return place / "x.tar"


HOWS = [
    # A map is of the page cache.
    pytest.param(engine, direct, marks=[] if (engine, direct) in IN_SHORT else [pytest.mark.variant])
    for engine in ENGINES
    for direct in ("0", "1")
    if (engine, direct) != ("mmap", "1")
]


@pytest.fixture(scope="module")
def mounted(pattern, tmp_path_factory) -> Iterator[Mount]:
    mounted = Mount(tmp_path_factory.mktemp("mounted") / "mnt", pattern, "--workers", 2)
    yield mounted
    mounted.end()


@pytest.mark.parametrize(("engine", "direct"), HOWS)
def test_fio_verifies_every_block(mounted, engine, direct):
    path = mounted.path / "shards" / "x" / NAME
    how = ["--readonly", "--rw=randread", f"--ioengine={engine}", f"--direct={direct}", "--invalidate=1"]
    done = fio(path, *how, "--iodepth=8", "--numjobs=2", "--group_reporting")
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
    assert (job["error"], job["read"]["io_bytes"]) == (0, 2 * SIZE)
    assert (mounted.path / ".touchfs/errors").read_text() == ""


def test_fio_would_see_a_wrong_byte(mounted):
    path = mounted.path / "shards" / "x" / "wrong.bin"
    done = fio(path, "--readonly", "--rw=randread", "--ioengine=psync")
    assert done.returncode != 0
    assert "verify" in done.stderr + done.stdout
