"""Stores: what is at a path, what is in a directory, and the files."""

import os
from pathlib import Path

import pytest

from touchfs.core.errors import ChangedError, NotFoundError, SourceError
from touchfs.source.data import DATA, Look, find_type
from touchfs.source.fingerprint import Fingerprint, build_files, parse_files
from touchfs.source.store import FileType


def test_what_is_at_a_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "loop").symlink_to("loop")
    found = DATA.stat(str(tmp_path / "file"))
    assert found == (FileType.FILE, Fingerprint.of((tmp_path / "file").stat()))
    assert DATA.stat(str(tmp_path / "link")) == found, "links are followed"
    assert find_type(str(tmp_path)) is FileType.DIRECTORY
    assert find_type(str(tmp_path / "pipe")) is FileType.OTHER
    for name in ("missing", "file/below", "x" * 300, "a\0b"):
        with pytest.raises(NotFoundError):
            DATA.stat(str(tmp_path / name))
        assert find_type(str(tmp_path / name)) is None
    with pytest.raises(SourceError, match="symbolic links"):
        DATA.stat(str(tmp_path / "loop"))
    assert find_type(str(tmp_path / "loop")) is None


def test_what_is_in_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "directory").mkdir()
    for name, target in (("link", "directory"), ("broken", "nothing"), ("loop", "loop")):
        (tmp_path / name).symlink_to(target)
    entries = {entry.name: (entry.is_file(), entry.is_dir()) for entry in DATA.list(str(tmp_path))}
    neither = False, False
    assert entries.pop("file") == (True, False)
    assert entries == {"directory": (False, True), "link": (False, True), "broken": neither, "loop": neither}
    for name in ("missing", "file"):
        with pytest.raises(NotFoundError):
            DATA.list(str(tmp_path / name))


def test_a_file_must_be_the_one_that_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    seen = DATA.stat(str(path)).fingerprint
    file = DATA.open(str(path), seen)
    assert (file.size, file.read(1, 3)) == (5, b"234")
    path.write_bytes(b"123456")
    with pytest.raises(ChangedError):
        DATA.open(str(path), seen).open()
    with DATA.stream(str(path)) as stream:
        assert stream.read() == b"123456", "a stream is of any version"


def test_opening_accesses_nothing(tmp_path: Path) -> None:
    file = DATA.open(str(tmp_path / "missing"))
    with pytest.raises(NotFoundError):
        file.open()
    (tmp_path / "missing").write_bytes(b"no more")
    assert file.size == 7


def test_one_look_keeps_its_answers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    look = Look()
    path.write_bytes(b"1")
    first = look.stat(str(path)), [entry.name for entry in look.list(str(tmp_path))]
    path.write_bytes(b"12")
    (tmp_path / "other").write_bytes(b"")
    assert (look.stat(str(path)), [entry.name for entry in look.list(str(tmp_path))]) == first
    assert Look().stat(str(path)).fingerprint.size == 2


def test_how_fingerprints_are_stored_and_hashed() -> None:
    """Catalogs, dataset files, ids of shards and the scratch store depend on it."""
    files = {"a.bin": Fingerprint(5, 6, 7), "b.bin": Fingerprint(8, 9)}
    stored = {
        "a.bin": {"size": 5, "mtime_ns": 6, "inode": 7},
        "b.bin": {"size": 8, "mtime_ns": 9, "inode": None},
    }
    assert build_files(files) == stored
    assert parse_files(stored) == files
    assert [each.hashed for each in files.values()] == ["5\0006\0007", "8\0009\0None"]


def test_a_listing_that_had_no_inodes_matches_any() -> None:
    assert Fingerprint(5, 6).matches(Fingerprint(5, 6, 7))
    assert not Fingerprint(5, 6, 8).matches(Fingerprint(5, 6, 7))
    assert not Fingerprint(5, 6).matches(Fingerprint(5, 7, 7))
