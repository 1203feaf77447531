"""A scratch store in which somebody else has put files of its names. An attacker is user 65534; we are root."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from planted_files import ATTACKER, dangling_symlink, hardlink, pipe, symlink

from touchfs.core.errors import SourceError, UntrustedError
from touchfs.source.decompressed import DecompressedFile, decompressed
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.scratch.account import Account
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, Scratch

NAME = f"{7:032x}"
LOCK = ".touchfs-scratch.lock"
NAMES = (f"{NAME}.scratch", f".touchfs-tmp-{NAME}.scratch", LOCK)
VALUE_NAMES = (f"{NAME}.value", f".touchfs-tmp-{NAME}.value", LOCK)

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def store(tmp_path: Path) -> Scratch:
    (tmp_path / "scratch").mkdir(mode=0o700)
    return Scratch(str(tmp_path / "scratch"), 10**6)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "victim").write_bytes(b"precious")
    return tmp_path / "victim"


def foreign(path: Path, victim: Path) -> None:
    path.write_bytes(b"forged")
    os.chown(path, ATTACKER, ATTACKER)


def changeable(path: Path, victim: Path) -> None:
    path.write_bytes(b"forged")
    path.chmod(0o666)


WAYS = [symlink, dangling_symlink, hardlink, pipe, foreign, changeable]


@pytest.mark.parametrize("planted", NAMES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_is_made_anew(store: Scratch, victim: Path, planted: str, way: Callable[[Path, Path], None]) -> None:
    way(Path(store.directory, planted), victim)
    held = store.make(NAME, [b"ours"])
    assert Path(held.path).read_bytes() == b"ours"
    found = os.lstat(held.path)
    assert (found.st_uid, found.st_mode & 0o777, found.st_nlink) == (0, 0o600, 1)
    assert victim.read_bytes() == b"precious"
    assert not victim.with_name("nothing").exists()
    again = store.find(NAME)
    assert again is not None
    again.close()
    held.close()


@pytest.mark.parametrize("planted", VALUE_NAMES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_value_is_made_anew(store: Scratch, victim: Path, planted: str, way: Callable[[Path, Path], None]) -> None:
    way(Path(store.directory, planted), victim)
    assert store.kept(NAME) is None
    store.keep(NAME, b"ours")
    assert store.kept(NAME) == b"ours"
    assert victim.read_bytes() == b"precious"
    assert not victim.with_name("nothing").exists()


def test_a_planted_account_is_not_believed(store: Scratch) -> None:
    """It says that no byte is in use."""
    held = store.make(NAME, [bytes(900_000)])
    with open(Path(store.directory, LOCK), "w+b") as lock:
        Account().save(lock.fileno())
    os.chown(Path(store.directory, LOCK), ATTACKER, ATTACKER)
    with pytest.raises(SourceError, match="900,000 are in use"):
        store.make(f"{8:032x}", [bytes(200_000)])
    held.close()


@pytest.mark.parametrize("planted", NAMES)
def test_a_directory_in_the_way(store: Scratch, planted: str) -> None:
    Path(store.directory, planted).mkdir()
    with pytest.raises(SourceError, match="--scratch-dir"):
        store.make(NAME, [b"ours"])


@pytest.mark.parametrize(("owner", "mode"), [(ATTACKER, 0o755), (0, 0o775), (0, 0o777)])
def test_a_directory_of_others(store: Scratch, owner: int, mode: int) -> None:
    os.chown(store.directory, owner, ATTACKER)
    os.chmod(store.directory, mode)
    with pytest.raises(SourceError, match=r"(belongs to nobody|others may write to this directory).*--scratch-dir"):
        store.make(NAME, [b"ours"])
    assert store.find(NAME) is None


def test_a_sticky_directory_of_all(store: Scratch) -> None:
    os.chmod(store.directory, 0o1777)
    foreign(Path(store.directory, f"{8:032x}.scratch"), Path())
    held = store.make(NAME, [b"ours"])
    assert Path(held.path).read_bytes() == b"ours"
    held.close()


def test_a_decompressed_form_that_is_planted_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "scratch"))
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"ours"))
    identity = Fingerprint.of(path.stat())
    held = decompressed(str(path), identity)
    file = DecompressedFile(str(path), identity)
    assert file.read(0, 4) == b"ours"
    file.close()
    held.close()
    os.chown(held.path, ATTACKER, ATTACKER)
    with pytest.raises(UntrustedError, match="belongs to nobody"):
        DecompressedFile(str(path), identity).read(0, 4)
    decompressed(str(path), identity).close()
    assert DecompressedFile(str(path), identity).read(0, 4) == b"ours"
