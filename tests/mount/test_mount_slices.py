"""`slices/` through the kernel: any span of any recording, from whichever worker."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import soundfile
from mounts import Mount, touchfs
from waiting import wait_until

RATE = 16000
CODINGS = {"wav": ["pcm_s16le"], "wav24.wav": ["pcm_s24le"], "flac": ["flac"], "mp3": ["libmp3lame", "-b:a", "64k"]}
MONDAY = "000000000/talks/monday.wav"


def run(*command: str | Path) -> bytes:
    return subprocess.run(command, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same 4 seconds in stereo in several codings, each a sample of its own."""
    place = tmp_path_factory.mktemp("recordings")
    times = np.arange(4 * RATE) / RATE
    samples = np.stack([np.sin(2000 * times), np.sin(5 * times**2 * 300)], 1) * 0.4
    soundfile.write(place / "all.wav", samples, RATE, "PCM_24")
    with tarfile.open(place / "s.tar", "w") as file:
        for name, coder in CODINGS.items():
            path = place / name
            kind = name.rpartition(".")[2]
            run("ffmpeg", "-v", "error", "-i", place / "all.wav", "-c:a", *coder, "-f", kind, path)
            file.add(path, f"talks/{name.partition('.')[0]}.{kind}")
    return place / "s.tar"


def full_decode(path: Path) -> np.ndarray:
    """By ffmpeg: 32 bits, of which lossless codings use the upper ones."""
    pcm = run("ffmpeg", "-v", "error", "-i", path, "-f", "s32le", "-c:a", "pcm_s32le", "-")
    return np.frombuffer(pcm, "<i4").reshape(-1, 2)


def decoded(data: bytes) -> np.ndarray:
    samples, rate = soundfile.read(io.BytesIO(data), dtype="int32", always_2d=True)
    assert rate == RATE
    return samples


@pytest.fixture(scope="module")
def mounted(tar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    """For tests that only read."""
    mounted = Mount(tmp_path_factory.mktemp("mounted") / "mnt", tar)
    yield mounted
    mounted.end()


@pytest.mark.parametrize("name", CODINGS)
def test_a_slice_is_cut_from_the_full_decode(mounted, tar, name):
    expected = full_decode(tar.parent / name)
    tolerance = 1 << 16 if name == "mp3" else 0  # a lossy coding has 16 bits
    for span, first, last in (
        ("1-2", RATE, 2 * RATE),
        ("0.25-0.5", RATE // 4, RATE // 2),
        ("7s-30001s", 7, 30001),
        ("3.5-100", 3 * RATE + RATE // 2, len(expected)),
        ("50-51", 0, 0),
        ("all", 0, len(expected)),
    ):
        path = mounted.path / "slices" / span / "s/talks" / f"{name.partition('.')[0]}.wav"
        data = run("cat", path)
        assert len(data) == path.stat().st_size
        found = decoded(data)
        assert found.shape == (last - first, 2)
        assert (np.abs(found.astype(np.int64) - expected[first:last]) <= tolerance).all()
        assert os.getxattr(path, "user.touchfs.slice") == span.encode()


def test_listed_sizes_are_true(mounted):
    talks = mounted.path / "slices/all/s/talks"
    sizes = {line.split()[-1]: int(line.split()[4]) for line in run("ls", "-l", talks).decode().splitlines()[1:]}
    assert sizes == {name: len((talks / name).read_bytes()) for name in ("flac.wav", "mp3.wav", "wav.wav", "wav24.wav")}


def test_names_of_spans(mount, speech):
    mounted = mount(speech, "--workers", 2)
    slices = mounted.path / "slices"
    assert os.readlink(slices / "0.10-0.50") == "0.1-0.5"
    assert (slices / "0.10-0.50" / MONDAY).read_bytes() == (slices / "0.1-0.5" / MONDAY).read_bytes()
    for name in ("1s", "2-1", "1-1", "-1-2", "nan-1", "0-inf", "1-2-3", "0-99999999999", "no"):
        with pytest.raises(FileNotFoundError):
            (slices / name).stat()
    with pytest.raises(OSError, match="Read-only"):
        (slices / "1-2.wav").write_bytes(b"")
    found = run("find", mounted.path).decode().splitlines()
    assert [path for path in found if "/slices" in path and "/hf/" not in path] == [str(slices)], (
        "no program meets what nobody named"
    )
    assert sorted(os.listdir(slices / "all" / "000000000" / "talks")) == ["monday.wav", "q&a", "tuesday.wav"]
    whole = {path.relative_to(slices / "all"): path.read_bytes() for path in (slices / "all").rglob("*.wav")}
    shards = mounted.path / "shards"
    assert whole == {path.relative_to(shards): path.read_bytes() for path in shards.rglob("*.wav")}


READER = """
import hashlib, os, sys
path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(first, last):
    name = f"{path}/slices/{number}s-{number + 100}s/MONDAY"
    with open(name, "rb") as file:
        print(number, os.stat(name).st_ino, os.fstat(file.fileno()).st_size, file.read().hex(), flush=True)
""".replace("MONDAY", MONDAY)


@pytest.mark.parametrize("scale", [100, pytest.param(500, marks=pytest.mark.variant)])
def test_processes_look_up_many_spans_from_two_workers(mount, speech, scale):
    mounted = mount(speech, "--workers", 2)
    pcm = (mounted.path / "shards" / MONDAY).read_bytes()[44:]
    ranges = [(scale * first, scale * (first + 2)) for first in (0, 1, 3, 4)]
    readers = [
        subprocess.Popen([sys.executable, "-c", READER, mounted.path, *map(str, each)], stdout=subprocess.PIPE)
        for each in ranges
    ]
    outputs = [reader.communicate()[0].split() for reader in readers]
    assert [reader.returncode for reader in readers] == [0] * len(readers)
    inodes = {}
    for output in outputs:
        for number, inode, size, data in zip(*(output[i::4] for i in range(4)), strict=True):
            first = 2 * int(number)
            assert bytes.fromhex(data.decode())[44:] == pcm[first : first + 200]
            assert int(size) == 244
            assert inodes.setdefault(number, inode) == inode, "all workers agree on the number"
    assert len(set(inodes.values())) == len(inodes) == 6 * scale


def test_a_slice_is_read_on_after_its_worker_was_killed(mount, tar):
    mounted = mount(tar, "--workers", 2)
    expected = full_decode(tar.parent / "flac")
    with ExitStack() as opened:
        names = [mounted.path / f"slices/{i}s-60000s/s/talks/flac.wav" for i in range(20)]
        files = [opened.enter_context(open(name, "rb", 0)) for name in names]
        before = mounted.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(mounted.workers()) == 2 and not set(mounted.workers()) & set(before))
        for first, file in enumerate(files):
            assert (decoded(file.read()) == expected[first:60000]).all()


def test_a_reload_shows_new_shards_below_spans_that_were_named(mount, tar, tmp_path):
    (tmp_path / "data").mkdir()
    os.link(tar, tmp_path / "data" / "s.tar")
    mounted = mount(tmp_path / "data")
    span = mounted.path / "slices" / "1-2"
    assert (span / "s/talks/flac.wav").exists()
    assert not (span / "t").exists()
    os.link(tar, tmp_path / "data" / "t.tar")
    assert touchfs("reload", mounted.path).returncode == 0
    wait_until((span / "t/talks/flac.wav").exists)
    assert (span / "t/talks/flac.wav").read_bytes() == (span / "s/talks/flac.wav").read_bytes()
