"""Directories that are replaced as a whole: readers keep the one that they hold."""

import os
import pickle
from pathlib import Path

import pytest

from touchfs.posix.published import HeldDirectory, HeldPath, hold_directory, publish_directory, remove_unheld


def make(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "data").write_text(text)
    return path


def test_a_held_directory_stays(tmp_path: Path) -> None:
    place = make(tmp_path / "place", "old")
    held = HeldDirectory(place)
    path = HeldPath(held, "data")
    assert held.is_current and Path(path).read_text() == "old" and str(path) == str(place / "data")
    publish_directory(make(tmp_path / "new", "new"), place)
    assert not held.is_current and Path(path).read_text() == "old" and str(path) == str(place / "data")
    assert (place / "data").read_text() == "new" and HeldDirectory(place).is_current
    # In another process it is the same one.
    again = pickle.loads(pickle.dumps(path))
    assert Path(again).read_text() == "old" and str(again) == str(place / "data")
    del held, path
    remove_unheld(tmp_path / "new")
    assert Path(again).read_text() == "old"
    del again
    remove_unheld(tmp_path / "new")
    assert os.listdir(tmp_path) == ["place"]


def test_what_nobody_holds_goes_at_once(tmp_path: Path) -> None:
    place = make(tmp_path / "place", "old")
    os.close(hold_directory(place))
    publish_directory(make(tmp_path / "new", "new"), place)
    assert os.listdir(tmp_path) == ["place"]


def test_what_is_not_there_is_not_held(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hold_directory(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        HeldDirectory(tmp_path / "file")
    remove_unheld(tmp_path / "none")
    remove_unheld(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]
