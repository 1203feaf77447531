"""A writer of caches in Lance is killed at any point: each cache is the old one or the new one, and whole."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from media.videos import VIDEOS, make
from waiting import wait_until

from touchfs.cache import Features, Value, Video, open_cache, write_lance_cache, write_lance_video_frames_cache
from touchfs.caches.backends.lance_video_frames import reset_worker_state

WRITER = """
import itertools, sys
from caches.test_lance_crashes import write
write(sys.argv[1], sys.argv[2], 0)
print("ready", flush=True)
for generation in itertools.count(1):
    write(sys.argv[1], sys.argv[2], generation)
"""
ROWS = Features({"n": Value("int64")})
FRAMES = Features({"video": Video("frames")})


def write(directory, video, generation):
    write_lance_cache(((i, {"n": generation}) for i in range(50)), ROWS, Path(directory, "rows"), batch_size=10)
    videos = ((i, {"video": video, "generation": generation}) for i in range(2))
    write_lance_video_frames_cache(videos, FRAMES, Path(directory, "frames"), workers=1)


def generations(directory):
    rows = {row["n"] for row in open_cache(directory / "rows", ROWS).backend.table.to_pylist()}
    windows = open_cache(directory / "frames", FRAMES).backend
    frames = {windows.get_row(i)["generation"] for i in range(windows.num_rows)}
    assert (len(rows), len(frames), windows.num_rows) == (1, 1, 20)
    return rows.pop(), frames.pop()


def decoders(directory):
    """Processes of writers that still run, and of their decoders: they have the environment of the test."""
    mark = f"TOUCHFS_TEST_MARK={directory}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(path)
        except OSError:
            pass  # it has ended, or is of somebody else
    return found


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_killed_writers(tmp_path, kills):
    video = make(tmp_path, "a.avi", *VIDEOS["mpeg4.avi"], size="48x32", seconds=1, rate=10)
    chooser = random.Random(kills)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "TOUCHFS_TEST_MARK": str(tmp_path)}
    command = [sys.executable, "-c", WRITER, str(tmp_path), str(video)]
    for _ in range(kills):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(chooser.random() * 0.5)
            process.kill()
        rows, frames = generations(tmp_path)
        assert rows - 1 <= frames <= rows
    wait_until(lambda: decoders(tmp_path) == [])
    reset_worker_state()  # datasets that are open keep old directories
    write(tmp_path, video, 1000)
    assert generations(tmp_path) == (1000, 1000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.avi", "frames", "frames.lock", "rows", "rows.lock"]
