"""Datasets, and mounts of them by the real command. Whatever happens, nothing stays mounted."""

import ctypes
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machine import Machine
from mounts import SPEECH, WAYS, WIDE, Mount, mounts_below, touchfs, ways

from touchfs.containers.touchnet.writer import TouchNetWriter


@pytest.fixture(scope="session")
def speech(tmp_path_factory) -> Path:
    """The recordings of tests/data, in three shards."""
    output = tmp_path_factory.mktemp("speech") / "shards"
    done = touchfs("pack", "touchnet", SPEECH / "speech.jsonl", output, "--num-utt-per-shard", 4)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="session")
def zoo(speech, tmp_path_factory) -> Path:
    """The speech, and all else there can be: video, token arrays, empty samples, a wide shard, a broken one."""
    zoo = tmp_path_factory.mktemp("zoo")
    for shard in sorted(speech.iterdir()):
        if shard.is_dir():
            shutil.copytree(shard, zoo / shard.name)
    video = zoo.parent / "video.mp4"
    source = ["-f", "lavfi", "-i", "testsrc=size=64x64:rate=5:duration=1"]
    subprocess.run(["ffmpeg", "-v", "error", "-y", *source, "-c:v", "mpeg4", video], check=True)
    choose = random.Random(1)
    modalities = {
        "audio": np.dtype("<i2"),
        "metainfo": np.dtype("u1"),
        "texttoken": np.dtype("<u2"),
        "video": np.dtype("u1"),
    }
    names = ("audio", "metainfo", "texttoken", "video")
    samples = [
        (choose.randbytes(20_000), {"key": "clip", "sample_rate": 8000}, choose.randbytes(600), video.read_bytes()),
        (b"", {"key": "empty", "sample_rate": 8000}, b"", b""),
        (choose.randbytes(1_500_002), {"key": "long/noise", "sample_rate": 44100}, choose.randbytes(400_000), b"?" * 9),
        (choose.randbytes(16), {"key": "no rate"}, choose.randbytes(2), b""),
    ]
    with TouchNetWriter(zoo / "mixed", modalities) as writer:
        for audio, metainfo, *others in samples:
            writer.add(dict(zip(names, (audio, json.dumps(metainfo).encode(), *others), strict=True)))
        writer.add({"audio": b"", "metainfo": b"", "texttoken": b"", "video": b""})
    with TouchNetWriter(zoo / "wide", {"texttoken": np.dtype("<i4")}) as writer:
        for _ in range(WIDE):
            writer.add({"texttoken": choose.randbytes(4 * choose.randrange(12))})
    shutil.copytree(zoo / "000000000", zoo / "broken")
    (zoo / "broken" / "audio.idx").write_bytes((zoo / "000000000" / "audio.idx").read_bytes()[:-3])
    return zoo


@pytest.fixture
def has_libraries(monkeypatch) -> None:
    """For tests whose mounts read tables or recordings: to import what reads these takes longer than a mount
    (`launcher.c`).
    """
    monkeypatch.setenv("COMMAND_IS_LARGE", "1")


@pytest.fixture(scope="session", params=ways())
def mounted(request, zoo, tmp_path_factory) -> Iterator[Mount]:
    """The zoo, mounted in each way there is. Only for tests that leave it as it is and name no plan."""
    mount = Mount(tmp_path_factory.mktemp("mounted") / "mnt", zoo, *WAYS[request.param])
    yield mount
    mount.end()


@pytest.fixture(scope="session")
def machine(tmp_path_factory) -> Iterator[Machine]:
    """With the helper of mount(8)."""
    with closing(Machine(tmp_path_factory.mktemp("machine"))) as machine:
        yield machine


@pytest.fixture(autouse=True)
def _nothing_stays_mounted(tmp_path) -> Iterator[None]:
    yield
    for path in mounts_below(tmp_path):
        subprocess.run(["fusermount3", "-u", "-z", path], check=True)


@pytest.fixture
def mount(tmp_path) -> Iterator[Callable[..., Mount]]:
    """Mounts a source at `tmp_path / name`, and ends what is left of it after the test."""
    mounts: list[Mount] = []

    def make(source: Path, *options: Any, name: str = "mnt") -> Mount:
        mounts.append(Mount(tmp_path / name, source, *options))
        return mounts[-1]

    yield make
    for each in mounts:
        each.end()


@pytest.fixture
def copied(speech, tmp_path) -> Path:
    """The speech, to be spoilt."""
    shutil.copytree(speech, tmp_path / "shards")
    (tmp_path / "shards" / "data.list").unlink()
    return tmp_path / "shards"


@pytest.fixture
def descriptor() -> Iterator[Callable[..., int]]:
    """Makes a directory, mounts an open /dev/fuse at it, as a container runtime does, and returns that."""
    libc, opened = ctypes.CDLL(None, use_errno=True), dict[int, Path]()

    def make(path: Path, *words: str, kind: str = "touchfs") -> int:
        path.mkdir()
        number = os.open("/dev/fuse", os.O_RDWR)
        opened[number] = path
        data = ",".join([f"fd={number}", "rootmode=40000", "user_id=0", "group_id=0", *words])
        at, of = os.fsencode(path), f"fuse.{kind}".encode()
        assert libc.mount(b"theirs", at, of, ctypes.c_ulong(0), data.encode()) == 0
        return number

    yield make
    for number, path in opened.items():
        os.close(number)
        subprocess.run(["umount", "--lazy", "--quiet", path], check=False)
