import os
from pathlib import Path

import pytest

from touchfs.core.errors import SourceError
from touchfs.posix.exchange import exchange


def test_directories_are_swapped(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "zwölf \udcff"
    for path in (first, second):
        path.mkdir()
        (path / path.name).touch()
    inodes = os.stat(first).st_ino, os.stat(second).st_ino
    exchange(str(first), str(second))
    assert (os.stat(second).st_ino, os.stat(first).st_ino) == inodes
    assert (os.listdir(first), os.listdir(second)) == ([second.name], ["first"])


def test_what_cannot_be_swapped_stays(tmp_path: Path) -> None:
    first = tmp_path / "first"
    (first / "inner").mkdir(parents=True)
    with pytest.raises(SourceError, match="first: cannot be swapped with nosuch: No such file or directory"):
        exchange(str(first), str(tmp_path / "nosuch"))
    # EINVAL is the answer of a file system without the operation, and that to a directory and one inside of it.
    with pytest.raises(SourceError, match=r"first: this file system cannot swap two paths \(RENAME_EXCHANGE\)"):
        exchange(str(first), str(first / "inner"))
    assert os.listdir(first) == ["inner"]
