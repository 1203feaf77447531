"""A state directory in which somebody else has put files of our names. An attacker is user 65534; we are root."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from planted_files import ATTACKER, dangling_symlink, hardlink, pipe, symlink

from touchfs.core.errors import StateError
from touchfs.select.expression import parse_where
from touchfs.select.survivors import SUFFIX, survivors
from touchfs.store.store import StateStore

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A database of our own."""
    connection = sqlite3.connect(tmp_path / "victim")
    connection.execute("CREATE TABLE precious (text)")
    connection.commit()
    connection.close()
    return tmp_path / "victim"


def directory(path: Path, victim: Path) -> None:
    path.mkdir()


def foreign(path: Path, victim: Path) -> None:
    path.write_bytes(victim.read_bytes())
    os.chown(path, ATTACKER, ATTACKER)


WAYS = [symlink, dangling_symlink, hardlink, pipe, directory, foreign]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_store_is_refused(place: Path, victim: Path, suffix: str, way: Callable[[Path, Path], None]) -> None:
    planted, before = place / f"store.sqlite{suffix}", victim.read_bytes()
    way(planted, victim)
    with pytest.raises(StateError, match=r"see to that, or choose another --state-dir") as caught:
        StateStore(str(place / "store.sqlite"))
    assert caught.value.path == str(planted)
    assert victim.read_bytes() == before
    assert not victim.with_name("nothing").exists()


@pytest.mark.parametrize(("owner", "mode"), [(ATTACKER, 0o755), (0, 0o775), (0, 0o777)])
def test_a_directory_of_others(place: Path, owner: int, mode: int) -> None:
    os.chown(place, owner, ATTACKER)
    place.chmod(mode)
    with pytest.raises(StateError, match=r"(belongs to nobody|others may write to this directory); see|: see to that"):
        StateStore(str(place / "store.sqlite"))
    assert list(place.iterdir()) == []


def test_a_sticky_directory_of_all(place: Path) -> None:
    place.chmod(0o1777)
    StateStore(str(place / "store.sqlite")).close()


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_states_are_for_us_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = StateStore(str(tmp_path / "new" / "store.sqlite"))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()} == {0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    store.close()


def test_a_copy_that_others_may_read_is_closed(place: Path) -> None:
    StateStore(str(place / "store.sqlite")).close()
    (place / "store.sqlite").chmod(0o664)
    store = StateStore(str(place / "store.sqlite"))
    assert (place / "store.sqlite").stat().st_mode & 0o777 == 0o600
    store.close()


class Numbered:
    """Ten samples."""

    identity, unmeasured = "numbered", 0

    def __len__(self) -> int:
        return 10

    def records(self, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
        return ({"n": n} for n in range(start, stop))


def found(place: Path) -> list[int]:
    return list(survivors(Numbered(), parse_where("n > 6"), str(place)).positions.tolist())


@pytest.mark.parametrize("way", [symlink, dangling_symlink, hardlink, pipe, foreign], ids=lambda way: way.__name__)
def test_survivors_are_made_anew(place: Path, victim: Path, way: Callable[[Path, Path], None]) -> None:
    assert found(place) == [7, 8, 9]
    (file,) = place.glob(f"*{SUFFIX}")
    file.unlink()
    before = victim.read_bytes()
    way(file, victim)
    assert found(place) == [7, 8, 9]
    assert victim.read_bytes() == before
    assert not victim.with_name("nothing").exists()
    assert (file.lstat().st_uid, file.lstat().st_mode & 0o777) == (0, 0o600)


def test_survivors_that_somebody_else_found_are_not_believed(place: Path) -> None:
    assert found(place) == [7, 8, 9]
    (file,) = place.glob(f"*{SUFFIX}")
    inode = file.stat().st_ino
    os.chown(file, ATTACKER, ATTACKER)
    assert found(place) == [7, 8, 9]
    assert file.stat().st_ino != inode


def test_survivors_are_kept_in_memory_where_we_may_not_write(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.chown(place, ATTACKER, ATTACKER)
    assert found(place) == [7, 8, 9]
    assert list(place.iterdir()) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"{place}: belongs to nobody: the survivors are kept in memory"
    ]


def test_a_directory_in_the_way_of_survivors(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert found(place) == [7, 8, 9]
    (file,) = place.glob(f"*{SUFFIX}")
    file.unlink()
    file.mkdir()
    assert found(place) == [7, 8, 9]
    assert len(caplog.records) == 1
