"""Lance datasets through the kernel: many readers, killed workers, new versions, and videos in windows."""

from __future__ import annotations

import datetime
import errno
import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_frames import VIDEOS, frames_of, write_frames
from mounts import Mount, touchfs
from waiting import wait_until

from touchfs.caches.frame_windows import WindowPlan

pytestmark = pytest.mark.usefixtures("has_libraries")

ROWS = 150
BLOB = {"lance-encoding:blob": "true"}


def table(first: int, count: int) -> pa.Table:
    made = [random.Random(i) for i in range(first, first + count)]
    columns = {
        "id": [f"{i:05d}" for i in range(first, first + count)],
        "image": [b"\x89PNG\r\n\x1a\n" + each.randbytes(1000 + 11 * i) for i, each in enumerate(made)],
        "film": [each.randbytes(each.choice([10, 90_000])) for each in made],
        "label": [i % 10 for i in range(count)],
    }
    types = [("id", pa.string()), ("image", pa.large_binary()), ("film", pa.large_binary()), ("label", pa.int64())]
    return pa.table(
        columns, pa.schema([pa.field(*each, metadata=BLOB if each[0] == "film" else None) for each in types])
    )


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    lance.write_dataset(table(0, ROWS), tmp_path / "rows.lance", data_storage_version="2.2", max_rows_per_file=70)
    return tmp_path / "rows.lance"


def shown(mounted: Mount) -> Path:
    return mounted.path / "shards" / "rows"


def test_many_readers_get_what_pylance_takes_and_the_mount_itself_does_not_load_lance(rows: Path, mount) -> None:
    mounted = mount(rows)
    expected = table(0, ROWS).to_pylist()

    def check(row: int) -> None:
        above, want = shown(mounted) / f"{row:05d}", expected[row]
        for name, data in (("image.png", want["image"]), ("film.bin", want["film"])):
            assert (above / name).read_bytes() == data and (above / name).stat().st_size == len(data)
        assert json.loads((above / "row.json").read_bytes()) == {"id": want["id"], "label": want["label"]}

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(check, random.Random(0).sample(range(ROWS), ROWS)))
    assert sorted(os.listdir(shown(mounted))) == [f"{i:05d}" for i in range(ROWS)]
    loaded = {pid: "pylance" in maps(pid) or "/lance/" in maps(pid) for pid in mounted.processes()}
    workers = mounted.workers()
    assert not any(loaded[pid] for pid in loaded if pid not in workers)
    assert any(loaded[pid] for pid in workers)


def maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_workers_that_are_killed_lose_nothing(rows: Path, mount) -> None:
    mounted = mount(rows, "--workers", 2)
    # It waits for a line before each 50 rows.
    code = (
        "import hashlib, os, sys; above = sys.argv[1]; digest = hashlib.sha256()\n"
        "for number, name in enumerate(sorted(os.listdir(above))):\n"
        "    if number % 50 == 0: print(flush=True); sys.stdin.readline()\n"
        "    digest.update(open(f'{above}/{name}/image.png', 'rb').read())\n"
        "print(digest.hexdigest())"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    readers = [subprocess.Popen([sys.executable, "-c", code, shown(mounted)], **pipes) for _ in range(2)]
    for number in range(ROWS // 50):
        for reader in readers:
            assert reader.stdout.readline() == "\n"
        if number:  # some rows were read
            os.kill(wait_until(mounted.workers)[0], signal.SIGKILL)
        for reader in readers:
            reader.stdin.write("\n")
            reader.stdin.flush()
    digests = {reader.communicate(timeout=60)[0].strip() for reader in readers}
    images = b"".join(row["image"] for row in table(0, ROWS).to_pylist())
    assert [reader.returncode for reader in readers] == [0, 0] and digests == {hashlib.sha256(images).hexdigest()}


def test_a_new_version_is_shown_after_a_reload_and_an_old_one_that_is_gone_is_stale(rows: Path, mount) -> None:
    mounted = mount(rows)
    names = set(os.listdir(shown(mounted)))
    lance.write_dataset(table(ROWS, 2), rows, mode="append")
    assert (shown(mounted) / "00007" / "row.json").read_bytes()
    lance.dataset(rows).cleanup_old_versions(older_than=datetime.timedelta(0), delete_unverified=True)
    numbers = itertools.cycle(range(20, ROWS))
    assert wait_until(lambda: error_of(shown(mounted) / f"{next(numbers):05d}")) == errno.ESTALE
    assert touchfs("reload", mounted.path).returncode == 0
    assert set(os.listdir(shown(mounted))) - names == {f"{ROWS:05d}", f"{ROWS + 1:05d}"}
    assert (shown(mounted) / f"{ROWS:05d}" / "image.png").read_bytes() == table(ROWS, 2).to_pylist()[0]["image"]


def error_of(row: Path) -> int | None:
    try:
        (row / "image.png").read_bytes()
        (row / "row.json").read_bytes()
    except OSError as error:
        return error.errno
    return None


def test_windows_through_the_kernel(tmp_path: Path, mount) -> None:
    cache, frames = write_frames(tmp_path / "videos", frames_of()), frames_of()
    mounted = mount(cache)
    plan = WindowPlan(3, 1, 2)
    above = mounted.path / "windows" / plan.name / "videos"
    numbers = [(video, first) for video, count in enumerate(VIDEOS) for first in range(0, 2 * plan.count(count), 2)]
    assert sorted(os.listdir(above)) == [f"{i:06d}" for i in range(len(numbers))]

    def check(number: int) -> None:
        video, first = numbers[number]
        directory = above / f"{number:06d}"
        assert sorted(os.listdir(directory)) == ["000.webp", "001.webp", "002.webp", "info.json"]
        for i, frame in enumerate(plan.frames(first)):
            same = mounted.path / "frames" / "videos" / f"video{video}" / f"{frame:06d}.webp"
            assert (directory / f"{i:03d}.webp").read_bytes() == frames[video][frame] == same.read_bytes()
            assert os.path.samefile(directory / f"{i:03d}.webp", same)
        assert json.loads((directory / "info.json").read_bytes())["frame_indices"] == list(plan.frames(first))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(check, range(len(numbers))))
    assert os.listdir(mounted.path / "windows") == ["L16-s0-h4", "L8-s0-h8"]
    assert not (mounted.path / "windows" / "L03-s0-h1").exists()
