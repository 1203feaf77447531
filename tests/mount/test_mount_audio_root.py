"""Audio that JSON lines name, through the kernel: its segments, its iterators, and what becomes of it meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from mounts import Mount, error_of, read_anew, touchfs
from range_server import range_server
from waiting import wait_until

RATE, COUNT = 8000, 30
PCM = np.random.default_rng(0).integers(-(2**15), 2**15, 2 * RATE, "<i2")


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "audio"
    (root / "talks").mkdir(parents=True)
    lines = []
    for i in range(COUNT):
        soundfile.write(root / "talks" / f"{i}.wav", np.roll(PCM, i), RATE, "PCM_16")
        line = {
            "key": f"k{i:02d}",
            "audio_filepath": f"talks/{i}.wav",
            "offset": 0.25,
            "duration": 0.5,
            "text": f"t{i}",
        }
        lines.append(json.dumps(line) + "\n")
    (tmp_path / "x.jsonl").write_text("".join(lines))
    return tmp_path / "x.jsonl"


@pytest.mark.parametrize("workers", [2, pytest.param(1, marks=pytest.mark.variant)])
def test_segments_and_iterators(mount, source, workers):
    mounted = mount(source, "--audio-root", source.parent / "audio", "--workers", workers)
    for i in range(COUNT):
        samples, _ = soundfile.read(mounted.path / "segments" / "x" / f"k{i:02d}" / "0000.wav", dtype="int16")
        assert np.array_equal(samples, np.roll(PCM, i)[2000:6000])
        stored = (source.parent / "audio" / "talks" / f"{i}.wav").read_bytes()
        assert (mounted.path / "shards" / "x" / f"k{i:02d}.wav").read_bytes() == stored
    iterator = mounted.path / ".touchfs" / "iterators" / "train"
    iterator.mkdir()
    (iterator / "spec").write_text(json.dumps({"source": "segments", "shuffle": 7}))
    seen = [(iterator / "next").read_text().splitlines()[0] for _ in range(COUNT)]
    assert sorted(path.rsplit("/", 2)[-2] for path in seen) == [f"k{i:02d}" for i in range(COUNT)]


def test_audio_of_a_store_is_shown_to_the_owner_only(mount, source, tmp_path, monkeypatch):
    """Nobody can say who else may read it there."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    talks = source.parent / "audio" / "talks"
    with range_server() as server:
        for path in talks.iterdir():
            server.put(f"/audio/talks/{path.name}", path.read_bytes())
        mounted = mount(source, "--audio-root", f"{server.url}/audio", "--allow-other")
        for i in range(0, COUNT, 9):
            wav = mounted.path / "segments" / "x" / f"k{i:02d}" / "0000.wav"
            samples, _ = soundfile.read(wav, dtype="int16")
            assert np.array_equal(samples, np.roll(PCM, i)[2000:6000])
            stored = mounted.path / "shards" / "x" / f"k{i:02d}.wav"
            assert stored.read_bytes() == (talks / f"{i}.wav").read_bytes()
            assert [path.stat().st_mode & 0o777 for path in (wav, stored)] == [0o400] * 2


def test_what_changes_under_a_mount_is_an_error_and_nothing_outside_is_read(mount, source, tmp_path):
    talks = source.parent / "audio" / "talks"
    mounted = mount(source, "--audio-root", source.parent / "audio")
    wavs = [mounted.path / "segments" / "x" / f"k{i:02d}" / "0000.wav" for i in range(4)]
    assert all(len(wav.read_bytes()) == 44 + 2 * 4000 for wav in wavs)
    (talks / "0.wav").write_bytes(b"changed")
    (talks / "1.wav").unlink()
    os.mkfifo(talks / "1.wav")
    (tmp_path / "secret.wav").write_bytes((talks / "2.wav").read_bytes())
    (talks / "2.wav").unlink()
    (talks / "2.wav").symlink_to(tmp_path / "secret.wav")
    for wav, expected in zip(wavs[:3], [["ESTALE"], ["EIO", "ESTALE"], ["EIO", "ESTALE"]], strict=True):
        assert wait_until(lambda wav=wav: error_of(read_anew, wav)) in expected  # files are verified once a second
    assert len(wavs[3].read_bytes()) == 44 + 2 * 4000
    shutil.move(talks, tmp_path / "outside")
    talks.symlink_to(tmp_path / "outside")
    wait_until(lambda: error_of(read_anew, wavs[3]))
    assert "leads out of" in (mounted.path / ".touchfs" / "errors").read_text()


def test_a_root_that_is_none_is_refused(tmp_path, source):
    (tmp_path / "m").mkdir()
    done = touchfs("mount", source, tmp_path / "m", "--audio-root", tmp_path / "none")
    assert done.returncode == 2 and "'--audio-root': Directory" in done.stderr


@pytest.mark.usefixtures("as_root")
def test_others_read_only_below_a_root_that_they_can_search():
    place = Path(tempfile.mkdtemp())  # one that all may look into, unlike pytest's
    try:
        place.chmod(0o755)
        (place / "audio").mkdir()
        soundfile.write(place / "audio" / "a.wav", PCM, RATE, "PCM_16")
        (place / "audio" / "link.wav").symlink_to("a.wav")
        lines = [{"key": key, "audio_filepath": f"{key}.wav"} for key in ("a", "link")]
        (place / "x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        for mode, reads in ((0o755, True), (0o700, False)):
            (place / "audio").chmod(mode)
            (place / "m").mkdir()
            mounted = Mount(place / "m", place / "x.jsonl", "--audio-root", place / "audio", "--allow-other")
            try:
                wav = mounted.path / "shards" / "x" / "a.wav"
                assert len(wav.read_bytes()) == 44 + PCM.nbytes
                done = subprocess.run(["cat", wav], user=12345, group=54321, extra_groups=[], capture_output=True)
                assert (done.returncode == 0) == reads
                # Root follows no links below for others.
                assert not (wav.parent / "link.wav").exists()
            finally:
                mounted.end()
                (place / "m").rmdir()
    finally:
        shutil.rmtree(place)
