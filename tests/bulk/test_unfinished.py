"""What workers leave in the output of a job that succeeds is removed; what others are writing there stays."""

import os
from pathlib import Path

import pytest

from touchfs.bulk.replace_files import locked_parents
from touchfs.bulk.unfinished import PLAN, join_plan, open_plan
from touchfs.posix.atomic import atomic_file

SETTINGS = {"jsonl": "a.jsonl", "sha256": ""}


def leave(output: Path) -> None:
    """What a worker leaves that is killed."""
    (output / ".touchfs-tmp-0123").mkdir()
    (output / ".touchfs-tmp-0123" / "audio.bin").write_bytes(b"half")
    (output / ".touchfs-tmp-4567").write_bytes(b"half")


def test_a_lost_worker_leaves_nothing(tmp_path: Path) -> None:
    with open_plan(tmp_path, SETTINGS):
        leave(tmp_path)
        (tmp_path / "000000000").mkdir()
    assert os.listdir(tmp_path) == ["000000000"]


def test_after_an_error_the_next_run_removes_it(tmp_path: Path) -> None:
    with pytest.raises(KeyError), open_plan(tmp_path, SETTINGS):
        leave(tmp_path)
        (tmp_path / "000000000").mkdir()
        raise KeyError
    assert sorted(os.listdir(tmp_path)) == [PLAN, ".touchfs-tmp-0123", ".touchfs-tmp-4567", "000000000"]
    with open_plan(tmp_path, SETTINGS):
        assert sorted(os.listdir(tmp_path)) == [PLAN, "000000000"]
    assert os.listdir(tmp_path) == ["000000000"]


@pytest.mark.usefixtures("impatient")
def test_what_a_living_worker_writes_stays(tmp_path: Path) -> None:
    worker = join_plan(tmp_path)
    with open_plan(tmp_path, SETTINGS):
        worker.__enter__()
        leave(tmp_path)
    worker.__exit__(None, None, None)
    assert sorted(os.listdir(tmp_path)) == [".touchfs-tmp-0123", ".touchfs-tmp-4567"]


def test_what_other_jobs_write_stays(tmp_path: Path) -> None:
    with open_plan(tmp_path, SETTINGS):
        leave(tmp_path)
        (tmp_path / ".touchfs-tmp-swap-89ab").mkdir()
        file = atomic_file(tmp_path / "000000.tar.idx")
        file.__enter__().write(b"index")
    file.__exit__(None, None, None)
    assert sorted(os.listdir(tmp_path)) == [".touchfs-tmp-swap-89ab", "000000.tar.idx"]


def test_a_lost_worker_leaves_nothing_beside_annotations(tmp_path: Path) -> None:
    left, others = tmp_path / ".touchfs-tmp-swap-0123", tmp_path / ".touchfs-tmp-4567"
    with locked_parents([str(tmp_path)]):
        left.mkdir()
        others.touch()
    assert os.listdir(tmp_path) == [others.name]
    with pytest.raises(KeyError), locked_parents([str(tmp_path)]):
        left.mkdir()
        raise KeyError
    assert left.exists()
