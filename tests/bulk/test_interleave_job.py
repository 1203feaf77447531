"""The job that interleaves: any executor, killed at any moment, and the same call goes on."""

import os
import random
import signal
import subprocess
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest
from command import TOUCHFS
from interleaved_tars import make_wds_tar, mint_sample
from waiting import wait_until

from touchfs.bulk.interleave.job import InterleaveReport, interleave
from touchfs.core.errors import ChangedError, FormatError, UsageError
from touchfs.core.progress import Progress
from touchfs.interleaved import (
    InterleavedFilter,
    InterleavedParquetWriter,
    InterleavedWebdatasetReader,
    InterleavedWebdatasetWriter,
    Pipeline,
)

SHARDS = 6
WRITERS = {"wds": InterleavedWebdatasetWriter, "parquet": InterleavedParquetWriter}
KINDS = pytest.mark.parametrize("kind", WRITERS)


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    for shard in range(SHARDS):
        make_wds_tar(tmp_path / f"in/{shard}.tar", [mint_sample(10 * shard + i, 2, size=(200, 150)) for i in range(3)])
    return tmp_path / "in"


def pipeline(tars: Path, output: Path, kind: str, where: str = "width < 201") -> Pipeline:
    return InterleavedWebdatasetReader(str(tars)) | InterleavedFilter(where) | WRITERS[kind](str(output))


def tree(path: Path) -> dict[str, bytes]:
    return {found.name: found.read_bytes() for found in path.iterdir() if found.is_file()}


def recorder(seen: list[tuple[int, int]]) -> Progress:
    return lambda done, total: seen.append((done, total))


@KINDS
def test_the_executor_does_not_matter(tars: Path, tmp_path: Path, kind: str, processes: Executor) -> None:
    report = interleave(pipeline(tars, tmp_path / "none", kind), str(tmp_path / "none"))
    assert report == InterleaveReport(SHARDS, SHARDS, 18, 18 * 5, 0)
    expected = tree(tmp_path / "none")
    assert sorted(expected) == [f"{number:06d}.{'tar' if kind == 'wds' else kind}" for number in range(SHARDS)]
    with ThreadPoolExecutor(2) as threads:
        for name, executor in ("threads", threads), ("processes", processes):
            out = tmp_path / name
            seen: list[tuple[int, int]] = []
            interleave(pipeline(tars, out, kind), str(out), executor=executor, progress=recorder(seen))
            assert tree(out) == expected
            total = sum(path.stat().st_size for path in tars.iterdir())
            assert seen == sorted(seen) and seen[-1] == (total, total)


@KINDS
def test_a_damaged_file_stops_it_and_it_goes_on(tars: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    expected = tmp_path / "expected"
    interleave(pipeline(tars, expected, kind), str(expected))
    good = (tars / "4.tar").read_bytes()
    status = (tars / "4.tar").stat()
    (tars / "4.tar").write_bytes(b"x" * len(good))
    os.utime(tars / "4.tar", ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(FormatError, match=r"4\.tar"):
        interleave(pipeline(tars, out, kind), str(out))
    before = {path.name: path.stat().st_ino for path in out.iterdir() if not path.name.startswith(".")}
    assert len(before) == 4
    (tars / "4.tar").write_bytes(good)
    os.utime(tars / "4.tar", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert interleave(pipeline(tars, out, kind), str(out)).written == 2
    assert tree(out) == tree(expected)
    assert before.items() <= {path.name: path.stat().st_ino for path in out.iterdir()}.items()


def test_it_goes_on_with_the_same_stages_and_files_only(tars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tars / "9.tar").write_bytes(b"x" * 1024)
    with pytest.raises(FormatError):
        interleave(pipeline(tars, out, "wds"), str(out))
    with pytest.raises(UsageError, match="was begun with filters"):
        interleave(pipeline(tars, out, "wds", "width < 1"), str(out))
    make_wds_tar(tars / "9.tar", [])
    with pytest.raises(ChangedError, match="has changed since"):
        interleave(pipeline(tars, out, "wds"), str(out))


def test_an_output_with_other_files_is_refused(tars: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/000000.parquet").write_bytes(b"")
    with pytest.raises(UsageError, match=r"already holds '000000\.parquet'"):
        interleave(pipeline(tars, tmp_path / "out", "wds"), str(tmp_path / "out"))
    with pytest.raises(UsageError, match="the output is empty"):
        interleave(pipeline(tars, tmp_path / "out", "wds"), "")
    with pytest.raises(UsageError, match="no writer"):
        interleave(Pipeline(InterleavedWebdatasetReader(str(tars))), str(tmp_path / "other"))


def test_a_partition_of_which_nothing_stays_is_an_empty_shard(tars: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = interleave(pipeline(tars, out, "parquet", 'modality == "none"'), str(out))
    assert report == InterleaveReport(SHARDS, SHARDS, 0, 0, 0)
    assert len(tree(out)) == SHARDS


@pytest.mark.parametrize(("kind", "kills"), [("parquet", 1), pytest.param("wds", 2, marks=pytest.mark.variant)])
def test_killed_at_any_moment(tars: Path, tmp_path: Path, kind: str, kills: int) -> None:
    """What has appeared is complete and stays, and the same command ends with what an uninterrupted one makes."""
    expected, out = tmp_path / "expected", tmp_path / "out"
    interleave(pipeline(tars, expected, kind), str(expected))
    command = [TOUCHFS, "interleave", "in", "out", "--to", kind, "--where", "width < 201", "--jobs", "2"]
    draw = random.Random(3)
    for number in range(kills):
        # Each process has another order of sets, which must not be a part of the plan.
        environment = os.environ | {"PYTHONHASHSEED": str(number)}
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        wanted = len(list(out.glob("[0-9]*"))) + draw.randint(0, 2)
        wait_until(lambda: process.poll() is not None or len(list(out.glob("[0-9]*"))) >= wanted)  # noqa: B023
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = {path.name: path.read_bytes() for path in out.glob("[0-9]*")}
        assert found.items() <= tree(expected).items()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    while b"is at work here" in done.stderr:  # a worker whose parent was killed goes on until it notices
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    if done.returncode:  # the last of the killed runs had ended
        assert b"already holds '000000" in done.stderr
    assert tree(out) == tree(expected)
