"""A conversion that was interrupted goes on where it was, and ends with the same bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from touchfs.bulk.convert.job import ConvertReport, convert
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import ChangedError, FormatError, UsageError
from touchfs.shard.options import Options

# Two of them follow each other, and one is the last of all.
BAD = (1, 4, 5, 10)


def write_source(source: Path, bad: tuple[int, ...]) -> Path:
    """Eleven samples in shards of four."""
    modalities = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}
    source.mkdir()
    for first in range(0, 11, 4):
        with TouchNetWriter(source / f"{first // 4:09d}", modalities) as writer:
            for number in range(first, min(first + 4, 11)):
                metainfo = {"key": f"utt{number}", "txt": f"text {number}", "sample_rate": 8000}
                pcm = np.arange(8000 + number, dtype="<i2").tobytes()
                writer.add({"audio": pcm, "metainfo": b"?" if number in bad else json.dumps(metainfo).encode()})
    return source


@pytest.fixture
def touch(tmp_path: Path) -> Path:
    return write_source(tmp_path / "touch", ())


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    return write_source(tmp_path / "damaged", BAD)


TARGETS = [TarTarget(2), TarTarget(None, bytes_per_shard=40_000, create_index=True), SharTarget(2), TouchTarget(2)]


class Stop(Exception):
    pass


def stop_after(calls: int) -> Callable[[int, int], None]:
    """Progress that ends the work once."""
    left = calls

    def progress(done: int, total: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Stop

    return progress


# Bad samples are skipped for every other target, and as a variant for all.
EACH_TARGET = pytest.mark.parametrize(
    ("target", "skip_bad"),
    [
        pytest.param(target, skip_bad, marks=() if skip_bad == place % 2 else pytest.mark.variant)
        for place, target in enumerate(TARGETS)
        for skip_bad in (False, True)
    ],
)


@EACH_TARGET
@pytest.mark.parametrize("step", [5, pytest.param(2, marks=pytest.mark.variant)])
def test_interrupted_anywhere_and_resumed(
    request: pytest.FixtureRequest, tmp_path: Path, target: Any, skip_bad: bool, step: int
) -> None:
    source = str(request.getfixturevalue("damaged" if skip_bad else "touch"))
    whole = convert(source, str(tmp_path / "whole"), target, skip_bad=skip_bad)
    assert (whole.samples, whole.skipped) == ((7, 4) if skip_bad else (11, 0))
    expected = tree(tmp_path / "whole")
    told: list[int] = []
    convert(source, str(tmp_path / "count"), target, skip_bad=skip_bad, progress=lambda done, total: told.append(done))
    for calls in range(1, len(told) + 1, step):
        output = tmp_path / f"out{calls}"
        with pytest.raises(Stop):
            convert(source, str(output), target, skip_bad=skip_bad, progress=stop_after(calls))
        before = {path: (output / path).stat().st_ino for path in tree(output) if not path.startswith(".")}
        found = tree(output)
        assert {path: found[path] for path in before}.items() <= renamed(expected, "whole", output.name).items()
        assert convert(source, str(output), target, skip_bad=skip_bad) == whole
        assert tree(output) == renamed(expected, "whole", output.name)
        assert sum((output / path).stat().st_ino != inode for path, inode in before.items()) <= 3, "are made again"
        with pytest.raises(UsageError, match="already holds"):
            convert(source, str(output), target, skip_bad=skip_bad)


@EACH_TARGET
def test_processes_make_the_same_bytes(
    request: pytest.FixtureRequest, tmp_path: Path, processes: Executor, target: Any, skip_bad: bool
) -> None:
    """Also if samples that are skipped move all shards behind them."""
    source = str(request.getfixturevalue("damaged" if skip_bad else "touch"))
    whole = convert(source, str(tmp_path / "whole"), target, skip_bad=skip_bad)
    told: list[tuple[int, int]] = []
    output = tmp_path / "out"
    again = convert(
        source, str(output), target, skip_bad=skip_bad, executor=processes, progress=lambda *pair: told.append(pair)
    )
    assert again == whole
    assert tree(output) == renamed(tree(tmp_path / "whole"), "whole", "out")
    assert told[0][0] == 0 and told[-1][0] == told[-1][1]
    assert told == sorted(told)


def test_processes_go_on_where_one_stopped(damaged: Path, tmp_path: Path, processes: Executor) -> None:
    source, output = str(damaged), tmp_path / "out"
    with pytest.raises(Stop):
        convert(source, str(output), TarTarget(1), skip_bad=True, progress=stop_after_shards(output, 3))
    before = {path: path.stat().st_ino for path in output.glob("*.tar")}
    assert len(before) >= 3
    assert convert(source, str(output), TarTarget(1), skip_bad=True, executor=processes) == ConvertReport(7, 7, 4)
    assert before == {path: path.stat().st_ino for path in before}
    convert(source, str(tmp_path / "whole"), TarTarget(1), skip_bad=True)
    assert tree(output) == tree(tmp_path / "whole")


def test_an_error_in_a_process_leaves_what_came_before_it(damaged: Path, tmp_path: Path, processes: Executor) -> None:
    source, output = str(damaged), tmp_path / "out"
    with pytest.raises(FormatError, match=r"sample \d \('\d+'\): metainfo is not JSON.*skip it with --skip-bad"):
        convert(source, str(output), TouchTarget(1), executor=processes)
    assert not list(output.glob(".touchfs-tmp-*"))
    assert convert(source, str(output), TouchTarget(1), skip_bad=True, executor=processes) == ConvertReport(7, 7, 4)
    assert len((output / "skipped.jsonl").read_text().splitlines()) == 4


def test_a_source_that_changes_meanwhile(touch: Path, tmp_path: Path) -> None:
    def change(done: int, total: int) -> None:
        if (tmp_path / "out/000000.tar").exists():
            os.utime(touch / "000000002/audio.bin")

    with pytest.raises(ChangedError, match=r"000000002: has changed since its conversion began: remove the output"):
        convert(str(touch), str(tmp_path / "out"), TarTarget(1), progress=change)


def test_a_shard_whose_record_was_not_written_is_made_again(touch: Path, tmp_path: Path) -> None:
    for target in TARGETS:
        for lost in ("000000001", "000000002") if isinstance(target, TarTarget) else ("000000001",):
            output = tmp_path / f"out{TARGETS.index(target)}-{lost}"
            expected = tmp_path / f"whole{TARGETS.index(target)}"
            if not expected.exists():
                convert(str(touch), str(expected), target)
            with pytest.raises(Stop):
                convert(str(touch), str(output), target, progress=stop_after_shards(output, 3))
            (output / f".touchfs-pack-{lost}.jsonl").unlink()
            convert(str(touch), str(output), target)
            assert tree(output) == renamed(tree(expected), expected.name, output.name)


def stop_after_shards(output: Path, count: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if (output / f".touchfs-pack-{count - 1:09d}.jsonl").exists():
            raise Stop

    return progress


def test_only_the_same_goes_on(damaged: Path, tmp_path: Path) -> None:
    source, output = str(damaged), str(tmp_path / "out")
    with pytest.raises(Stop):
        convert(source, output, TarTarget(1), skip_bad=True, progress=stop_after_shards(Path(output), 3))
    with pytest.raises(UsageError, match="was begun with --skip-bad: go on with it, or remove it"):
        convert(source, output, TarTarget(1))
    with pytest.raises(UsageError, match="was begun with samples-per-shard 1, not 2: go on with that"):
        convert(source, output, TarTarget(2), skip_bad=True)
    with pytest.raises(UsageError, match="was begun with kind convert with TarTarget, not convert with TouchTarget"):
        convert(source, output, TouchTarget(1), skip_bad=True)
    with pytest.raises(UsageError, match=r"was begun with leave-out \[\], not \['txt'\]"):
        convert(source, output, TarTarget(1), leave_out=["txt"], skip_bad=True)
    with pytest.raises(UsageError, match="was begun with segments first, not none"):
        convert(source, output, TarTarget(1), options=Options(segments="none"), skip_bad=True)
    os.utime(damaged / "000000002/audio.bin")
    with pytest.raises(ChangedError, match=r"has changed since .* was begun"):
        convert(source, output, TarTarget(1), skip_bad=True)


def test_a_bad_sample_that_is_skipped_at_last(damaged: Path, tmp_path: Path) -> None:
    """What was made before it was met stays."""
    source, output = str(damaged), tmp_path / "out"
    with pytest.raises(FormatError, match="skip it with --skip-bad"):
        convert(source, str(output), TarTarget(1))
    inode = (output / "000000.tar").stat().st_ino
    assert convert(source, str(output), TarTarget(1), skip_bad=True) == ConvertReport(7, 7, 4)
    assert (output / "000000.tar").stat().st_ino == inode
    assert len((output / "skipped.jsonl").read_text().splitlines()) == 4


def renamed(files: dict[str, bytes], before: str, after: str) -> dict[str, bytes]:
    """`data.list` names the output."""
    return {
        path: data.replace(f"/{before}/".encode(), f"/{after}/".encode()) if path == "data.list" else data
        for path, data in files.items()
    }


def tree(path: Path) -> dict[str, bytes]:
    return {str(found.relative_to(path)): found.read_bytes() for found in path.rglob("*") if found.is_file()}
