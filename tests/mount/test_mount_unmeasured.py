"""Segments of MP3, Opus and the like through the kernel: no listing reads a recording, and every size is true."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from mounts import Mount, touchfs
from recordings import decode_all, make, to_16_bits
from tars import write_tar

pytestmark = pytest.mark.usefixtures("has_libraries")

RATE = 48000
SPANS = [(0.5, 1.5), (2.0, 3.25), (7.0, 9.0)]
METAINFO = json.dumps({"segments": [{"start": first, "end": last, "text": "x"} for first, last in SPANS]}).encode()
CODINGS = {"mp3": (2,), "opus": (1, "-c:a", "libopus")}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("recordings")
    return {name: make(place, f"{name}.{name}", RATE, *options) for name, options in CODINGS.items()}


def tar_in(directory: Path, recordings: dict[str, bytes]) -> Path:
    texts = {f"{name.partition('.')[0]}.json": METAINFO for name in recordings}
    return write_tar(directory / "x.tar", recordings | texts)


@pytest.fixture
def tar(tmp_path, recordings) -> Path:
    return tar_in(tmp_path, {path.name: path.read_bytes() for path in recordings.values()})


def expected(recordings: dict[str, Path]) -> dict[str, np.ndarray]:
    """The samples of each `.wav`, from full decodes."""
    found = {}
    for name, path in recordings.items():
        whole = to_16_bits(decode_all(path))
        for number, (first, last) in enumerate(SPANS):
            found[f"{name}/{number:04d}.wav"] = whole[int(first * RATE) : int(last * RATE)]
    return found


def bytes_read(mounted: Mount) -> int:
    """What the workers have read so far. A recording is read as a whole to know its length."""
    return sum(int(Path(f"/proc/{pid}/io").read_text().split()[1]) for pid in mounted.workers())


def run(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check(data: bytes, samples: np.ndarray) -> None:
    found = soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)[0]
    assert found.shape == samples.shape
    assert np.abs(found.astype(int) - samples).max() <= 1


def test_listings_read_nothing_and_every_size_is_true(mount, tar, recordings):
    mounted, least = mount(tar), min(path.stat().st_size for path in recordings.values())
    before = bytes_read(mounted)
    assert len(run("find", mounted.path, "-name", "*.wav").split()) == 6
    assert run("find", mounted.path, "-type", "f").count("/segments/") == 18
    assert [len(os.listdir(mounted.path / "segments/x" / name)) for name in recordings] == [9, 9]
    assert bytes_read(mounted) - before < least
    segments = mounted.path / "segments" / "x"
    wanted = {name: 44 + each.nbytes for name, each in expected(recordings).items()}
    small = run("find", segments, "-name", "*.wav", "-size", "-9999k", "-printf", "%P %s\n")
    assert dict(line.split() for line in small.splitlines()) == {name: str(size) for name, size in wanted.items()}
    before = bytes_read(mounted)
    assert before > sum(path.stat().st_size for path in recordings.values())
    shown = run("ls", "-l", *(segments / name for name in wanted))
    assert sorted(int(line.split()[4]) for line in shown.splitlines()) == sorted(wanted.values())
    assert {name: (segments / name).stat().st_size for name in wanted} == wanted
    assert bytes_read(mounted) - before < least
    for name in recordings:  # as do merged segments of the same recordings
        assert (mounted.path / "merged/max=4/x" / name / "0000.wav").stat().st_size > RATE
    assert bytes_read(mounted) - before < least


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.variant)])
def test_copies_are_complete(mount, tar, recordings, tmp_path, workers):
    """Of files that nobody has looked at before, by each tool."""
    tools = {
        "cp": ["cp", "-r"],
        "rsync": ["rsync", "-r"],
        "python": [sys.executable, "-S", "-c", "import shutil, sys; shutil.copytree(*sys.argv[1:])"],
    }
    for tool, command in tools.items():
        mounted, target = mount(tar, "--workers", workers, name=f"mnt-{tool}"), tmp_path / tool
        run(*command, f"{mounted.path}/segments/x/" if tool == "rsync" else mounted.path / "segments/x", target)
        for name, samples in expected(recordings).items():
            check((target / name).read_bytes(), samples)


# In a process of its own: a map of a file that is cut ends the process.
MAP_WHILE_OTHERS_LIST = """
import mmap, os, subprocess, sys
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    first = mapped[:100]
    for _ in range(6):
        subprocess.run(["find", sys.argv[2]], stdout=subprocess.DEVNULL, check=True)
    sys.stdout.buffer.write(mapped[:])
    assert mapped[:100] == first
    assert os.fstat(file.fileno()).st_size == len(mapped)
"""


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.variant)])
def test_mapped_files_are_whole_while_others_list(mount, tar, recordings, workers):
    """A listing by a worker that has not read the recording does not cut the file."""
    mounted = mount(tar, "--workers", workers)
    [(name, samples), *_] = expected(recordings).items()
    segments = mounted.path / "segments"
    mapping = [sys.executable, "-c", MAP_WHILE_OTHERS_LIST, segments / "x" / name, segments]
    check(subprocess.run(mapping, capture_output=True, check=True).stdout, samples)


def test_reads_at_any_place_are_those_of_the_whole(mount, tar, recordings):
    mounted = mount(tar)
    for name, samples in expected(recordings).items():
        path = mounted.path / "segments" / "x" / name
        with open(path, "rb", buffering=0) as file:
            file.seek(-1000, os.SEEK_END)
            end = file.read()
        data = path.read_bytes()
        check(data, samples)
        assert (len(end), data[-1000:]) == (1000, end)
        assert b"".join(iter_blocks(path)) == data


def iter_blocks(path: Path):
    with open(path, "rb", buffering=0) as file:
        while block := file.read(4321):
            yield block


def test_a_corrupt_recording_is_listed_and_its_reads_fail_with_a_reason(mount, tmp_path, recordings):
    whole = recordings["mp3"].read_bytes()
    mounted = mount(tar_in(tmp_path, {"a.mp3": b"nonsense" * 200, "b.mp3": whole, "c.opus": whole[:3000]}))
    segments = mounted.path / "segments" / "x"
    assert run("ls", "-lR", segments).count("0000.wav") == 3
    assert (segments / "a/0000.wav").stat().st_size == 1  # or the kernel would ask for no bytes
    for _ in range(2):
        copied = subprocess.run(["cp", segments / "a/0000.wav", tmp_path / "copy"], capture_output=True, text=True)
        assert copied.returncode == 1
        assert "Input/output error" in copied.stderr
    reasons = (mounted.path / ".touchfs" / "errors").read_text()
    assert "segments/x/a/0000.wav: not a recording that can be sliced: it begins with b'nonsense" in reasons
    assert (segments / "b/0000.wav").stat().st_size == 44 + 4 * RATE
    assert json.loads((segments / "a/0000.json").read_bytes())["touchfs"] == {
        "key": "a",
        "segment": 0,
        "start": 0.5,
        "end": 1.5,
    }


def test_after_a_full_index_no_recording_is_read_for_its_size(mount, tar, recordings):
    done = touchfs("index", "--full", tar)
    assert done.returncode == 0, done.stderr
    mounted = mount(tar)
    before = bytes_read(mounted)
    segments = mounted.path / "segments" / "x"
    sizes = {name: (segments / name).stat().st_size for name in expected(recordings)}
    assert sizes == {name: 44 + each.nbytes for name, each in expected(recordings).items()}
    assert bytes_read(mounted) - before < min(path.stat().st_size for path in recordings.values())
    assert mounted.info()["samples_of_unknown_duration"] == 0
    for name, samples in expected(recordings).items():
        check((segments / name).read_bytes(), samples)


def test_a_reload_takes_a_full_index(mount, tar):
    """The files of before stay what they are for those who have them open."""
    mounted = mount(tar)
    path = mounted.path / "segments/x/mp3/0000.wav"
    with open(path, "rb") as file:
        half = file.read(9999)
        assert touchfs("index", "--full", tar).returncode == 0
        assert touchfs("reload", mounted.path).returncode == 0
        assert mounted.info()["samples_of_unknown_duration"] == 0
        whole = path.read_bytes()
        assert half == whole[:9999]
