"""`by-key/`, `merged/` and `tokens/` through the kernel: symbolic links, and directories that are there once they are
named.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import signal
import struct
import subprocess
import wave
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from megatron import INT32, tokens, write_prefix
from mounts import touchfs
from waiting import wait_until

_GETDENTS64 = {"x86_64": 217, "aarch64": 61}[platform.machine()]
_DIRECTORY = 4


def test_by_key_leads_to_every_sample(mount, speech):
    mounted = mount(speech, "--workers", 2, "--list-by-key")
    links = {entry.name: os.readlink(entry.path) for entry in os.scandir(mounted.path / "by-key")}
    files = {f"../{path.relative_to(mounted.path)}" for path in (mounted.path / "shards").rglob("*") if path.is_file()}
    assert sorted(links.values()) == sorted(files)
    assert (mounted.info()["by_key"], mounted.info()["by_key_listing"]) == (10, "all of them")
    for name, target in links.items():
        path = mounted.path / "by-key" / name
        assert path.lstat().st_size == len(os.fsencode(target))
        assert path.read_bytes() == (mounted.path / "by-key" / target).read_bytes()
    assert links["talks%2Fmonday.wav"] == "../shards/000000000/talks/monday.wav"
    with pytest.raises(FileNotFoundError):
        (mounted.path / "by-key" / "talks%2Fnever.wav").stat()
    with pytest.raises(OSError, match="Read-only"):
        (mounted.path / "by-key" / "new").symlink_to("x")
    listed = subprocess.run(["ls", mounted.path / "by-key"], capture_output=True, text=True, check=True).stdout
    assert sorted(listed.splitlines()) == sorted(links)


def test_by_key_is_listed_only_on_request(mount, speech):
    mounted = mount(speech)
    by_key = mounted.path / "by-key"
    assert os.listdir(by_key) == []
    found = subprocess.run(
        ["find", mounted.path, "-type", "l", "-not", "-path", "*/manifests/*"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == f"{mounted.path / '.touchfs'}\n"
    assert os.readlink(by_key / "talks%2Fmonday.wav") == "../shards/000000000/talks/monday.wav"
    assert (by_key / "talks%2Fmonday.txt").read_bytes() == b"Good morning. This is a talk."
    told = mounted.info()
    assert told["by_key"] == 10
    *_, command = told["by_key_listing"].split("`")[:-1]
    assert "--list-by-key" in told["by_key_listing"]
    assert command == f"touchfs ls {speech}:by-key"
    listed = touchfs(*command.split()[1:]).stdout.splitlines()
    assert len(listed) == 30
    assert all((by_key / name).exists() for name in listed)


def merged(path):
    """Seconds and text of the files of a directory."""
    told = []
    for name in sorted(os.listdir(path)):
        if name.endswith(".wav"):
            with wave.open(str(path / name)) as file:
                seconds = file.getnframes() / file.getframerate()
            told.append((seconds, json.loads((path / name).with_suffix(".json").read_bytes())))
    return told


def test_a_plan_is_there_when_it_is_named(mount, speech):
    mounted = mount(speech, "--workers", 2)
    assert os.listdir(mounted.path / "merged") == []
    of_monday = mounted.path / "merged" / "max=30,gap=30" / "000000000" / "talks" / "monday"
    ((seconds, told),) = merged(of_monday)
    parts = sorted((mounted.path / "segments" / "000000000" / "talks" / "monday").glob("*.txt"))
    assert len(told["parts"]) == len(parts) > 1
    assert seconds == pytest.approx(told["end"] - told["start"])
    assert (of_monday / "0000.txt").read_text() == " ".join(path.read_text() for path in parts) == told["text"]
    wait_until(lambda: os.listdir(mounted.path / "merged") == ["max=30,gap=30"])  # a listing is kept for a second
    assert os.readlink(mounted.path / "merged" / "gap=30,max=30.0") == "max=30,gap=30"
    assert merged(mounted.path / "merged" / "gap=30,max=30.0" / "000000000" / "talks" / "monday") == [(seconds, told)]
    assert len(merged(mounted.path / "merged" / "max=0.1" / "000000000" / "talks" / "monday")) == len(parts)
    found = subprocess.run(["find", mounted.path / "merged", "-type", "f"], capture_output=True, text=True, check=True)
    assert len(found.stdout.splitlines()) > 2 * len(parts)
    assert os.getxattr(of_monday / "0000.wav", "user.touchfs.plan") == b"max=30,gap=30"
    for name in ("max", "max=-1", "nonsense"):
        with pytest.raises(FileNotFoundError):
            os.stat(mounted.path / "merged" / name)


def test_workers_agree_on_plans_and_a_new_one_knows_them(mount, speech):
    mounted = mount(speech, "--workers", 2)
    names = [f"max={number}" for number in range(1, 60)]

    def inode(name: str) -> int:
        return os.stat(mounted.path / "merged" / name / "000000000").st_ino

    with ThreadPoolExecutor(8) as threads:
        inodes = list(threads.map(inode, names))
        assert len(set(inodes)) == len(names)
        assert list(threads.map(inode, reversed(names))) == inodes[::-1]
    before = mounted.workers()
    for worker in before:
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: len(mounted.workers()) == 2 and not set(mounted.workers()) & set(before))
    with open(mounted.path / "merged" / names[0] / "000000000" / "talks" / "monday" / "0000.wav", "rb") as file:
        assert file.read(4) == b"RIFF"
    assert [inode(name) for name in names] == inodes


def test_there_is_an_end_to_plans(mount, speech, tmp_path):
    mounted = mount(speech, "--state-dir", tmp_path / "state")
    for number in range(1, 1001):
        os.stat(mounted.path / "merged" / f"max={number}")
    with pytest.raises(OSError) as caught:
        os.stat(mounted.path / "merged" / "max=1001")
    assert caught.value.errno == errno.ENOSPC
    os.stat(mounted.path / "merged" / "max=1000.0")
    assert len(os.listdir(mounted.path / "merged")) == 1000
    mounted.end()
    again = mount(speech, "--state-dir", tmp_path / "state")
    assert os.listdir(again.path / "merged") == []
    os.stat(again.path / "merged" / "max=1001")


def dirents(path):
    """Name, inode number and type of each entry as the kernel has them: Python leaves two out."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer, entries = ctypes.create_string_buffer(300), []  # so small that listings go on at every place
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while (size := libc.syscall(_GETDENTS64, descriptor, buffer, len(buffer))) > 0:
            at = 0
            while at < size:
                inode, _, length, kind = struct.unpack_from("<QqHB", buffer, at)
                name = ctypes.string_at(ctypes.addressof(buffer) + at + 19)
                entries.append((os.fsdecode(name), inode, kind))
                at += length
        assert size == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(descriptor)
    return entries


@pytest.mark.parametrize("way", [(), ("--control", "none")])
def test_every_listing_has_itself_and_its_parent(mount, speech, way):
    mounted = mount(speech, *way)
    os.stat(mounted.path / "merged" / "max=30,gap=30")
    if not way:
        (mounted.path / ".touchfs" / "iterators" / "train").mkdir(exist_ok=True)
    count = 0
    for directory, directories, files in os.walk(mounted.path):
        entries = dirents(directory)
        (itself, inode, kind), (above, parent, kind_above), *others = entries
        assert (itself, kind, above, kind_above) == (".", _DIRECTORY, "..", _DIRECTORY)
        assert inode == os.stat(directory).st_ino
        is_root = directory == str(mounted.path)
        assert parent == (inode if is_root else os.stat(f"{directory}/..").st_ino)
        links = [name for name in files if os.path.islink(f"{directory}/{name}")]
        assert sorted(name for name, _, _ in others) == sorted([*directories, *files])
        assert len(links) in (0, len(files)) or directory.endswith("manifests/hf")
        count += 1
    assert count > 20


def test_a_name_that_is_too_long(mount, speech):
    mounted = mount(speech)
    for place in ("", "shards", "shards/000000000/talks", "by-key", "merged", ".touchfs", ".touchfs/iterators"):
        for length, expected in ((255, errno.ENOENT), (256, errno.ENAMETOOLONG), (2000, errno.ENAMETOOLONG)):
            with pytest.raises(OSError) as caught:
                os.stat(mounted.path / place / ("é" * (length // 2) + "x" * (length % 2)))
            assert caught.value.errno == expected, (place, length)
    with pytest.raises(OSError) as caught:
        (mounted.path / ".touchfs" / "iterators" / ("x" * 256)).mkdir()
    assert caught.value.errno == errno.ENAMETOOLONG
    assert os.statvfs(mounted.path).f_namemax == 255


def test_tokens_are_there_in_any_length(mount, tmp_path):
    (tmp_path / "data").mkdir()
    for name in "ab":
        documents = [tokens(*range(100 * i, 100 * i + 30 + i)) for i in range(40)]
        write_prefix(tmp_path / "data" / name, INT32, documents)
    whole = np.concatenate(documents)
    mounted = mount(tmp_path / "data", "--workers", 2)
    above = mounted.path / "tokens"
    assert os.listdir(above) == []
    with pytest.raises(FileNotFoundError):
        (above / "64,overlap=64").stat()
    for plan, length, overlap in (("64", 64, 0), ("65,overlap=1", 65, 1)):
        directory = above / plan / "b"
        names = sorted(name for name in os.listdir(directory) if name.endswith(("0.npy", "1.npy")))
        for name in names:
            start = int(name[:6]) * (length - overlap)
            expected = whole[start : start + length]
            assert np.array_equal(np.load(directory / name), expected)
            assert np.array_equal(np.load(directory / name, mmap_mode="r"), expected)
            told = json.loads((directory / name).with_suffix(".json").read_bytes())
            bounds = np.load(directory / f"{name[:6]}.cu_seqlens.npy").tolist()
            assert bounds == [0, *(part["end"] for part in told["documents"])]
    train = mounted.path / ".touchfs" / "iterators" / "train"
    train.mkdir()
    (train / "spec").write_text('{"select": "tokens/64", "shuffle": 3, "output": "relpath"}')
    order = [(train / "next").read_text().strip() for _ in range(int((train / "len").read_text()))]
    assert len(order) == len(set(order)) == 2 * -(-len(whole) // 64)
    (train / "reset").write_text("1")
    (train / "token").write_bytes(os.getxattr(mounted.path / order[5], "user.touchfs.token"))
    assert (train / "position").read_text() == "5\n" and (train / "next").read_text().strip() == order[5]
