import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from touchfs.core.errors import SourceError, UsageError
from touchfs.posix.atomic import TEMPORARY_PREFIX, atomic_directory, atomic_file


def test_a_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_file(path) as file:
        file.write(b"new")
        assert not path.exists()
        assert [name.startswith(TEMPORARY_PREFIX) for name in os.listdir(tmp_path)] == [True]
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == b"new"


def test_a_file_is_replaced_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_file(str(path)) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_an_exception_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_one_writer_inside_another(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with atomic_file(path) as outer, atomic_file(path) as inner:
        outer.write(b"outer")
        inner.write(b"inner")
    assert path.read_bytes() == b"outer"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be written: No such file"), atomic_file(tmp_path / "none" / "file"):
        pass
    (tmp_path / "directory").mkdir()
    with pytest.raises(SourceError, match="cannot be written: Is a directory"), atomic_file(tmp_path / "directory"):
        pass
    assert os.listdir(tmp_path) == ["directory"]


def test_what_is_no_file_is_not_replaced_and_links_stay(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="not a regular file"), atomic_file(tmp_path / "pipe"):
        pass
    (tmp_path / "link").symlink_to("file")
    for data in (b"new", b"newer"):  # at first the link leads nowhere
        with atomic_file(tmp_path / "link") as file:
            file.write(data)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == data


def test_a_directory_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    with atomic_directory(path) as made:
        assert made.parent == tmp_path
        assert made.name.startswith(TEMPORARY_PREFIX)
        (made / "inner").mkdir()
        (made / "inner" / "file").write_bytes(b"new")
        assert not path.exists()
    assert os.listdir(tmp_path) == ["directory"]
    assert (path / "inner" / "file").read_bytes() == b"new"


def test_an_exception_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_directory(tmp_path / "directory") as made:
        (made / "file").write_bytes(b"new")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_a_directory_must_be_new(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    path.mkdir()
    with pytest.raises(UsageError, match="already exists"), atomic_directory(path):
        pass
    path.rmdir()
    with pytest.raises(SourceError, match="cannot be written"), atomic_directory(path):
        path.mkdir()
        (path / "file").write_bytes(b"of someone faster")
    assert (path / "file").read_bytes() == b"of someone faster"
    assert os.listdir(tmp_path) == ["directory"]


WRITER = """
import sys
from touchfs.posix.atomic import atomic_file
for version in range(10**9):
    with atomic_file(sys.argv[1]) as file:
        for _ in range(64):
            file.write(version.to_bytes(8, "little") * 512)
    print(version, flush=True)
"""


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.variant)])
def test_kill_leaves_old_or_new(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "file"
    moments = random.Random(7)
    for _ in range(kills):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(moments.random() * 0.05)
        writer.send_signal(signal.SIGKILL)
        reported = [0, *map(int, writer.communicate()[0].split())]
        data = path.read_bytes()
        version = int.from_bytes(data[:8], "little")
        assert data == data[:8] * (64 * 512)
        assert version - reported[-1] in (0, 1)  # renamed, perhaps not yet reported
    assert all(name == "file" or name.startswith(TEMPORARY_PREFIX) for name in os.listdir(tmp_path))
