"""An index that somebody else has put there, or a part of it: not read, not written through, and made anew."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from shown import dataset_files
from touchnet import write_speech

from touchfs.core.errors import UntrustedError
from touchfs.dataset import Dataset
from touchfs.indexing import in_memory, open_dataset

ATTACKER = 65534
SUFFIXES = (".arrow", ".keys", ".dataset.json")

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache/touchfs/index"
    in_memory.discard()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for i in range(2):
        samples = [{"key": f"utt{i}-{j}", "txt": f"text {j}", "sample_rate": 8000} for j in range(2)]
        write_speech(tmp_path / f"data/{i:09d}", [(told, bytes([i]) * 16) for told in samples])
    return tmp_path / "data"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "victim").write_bytes(b"precious")
    return tmp_path / "victim"


@pytest.fixture(params=["cache", "in place"])
def opened(request: pytest.FixtureRequest, source: Path) -> Callable[[], Dataset]:
    return lambda: open_dataset(str(source), in_place=request.param == "in place")


def place_of(dataset: Dataset) -> Path:
    return Path(dataset.shards[0].catalog).parent


def everything(dataset: Dataset) -> tuple[dict[str, bytes], int]:
    return dataset_files(dataset), len(dataset.find("utt1-0"))


def as_symlink(path: Path, victim: Path) -> None:
    path.unlink()
    path.symlink_to(victim)


def as_symlink_to_a_forgery(path: Path, victim: Path) -> None:
    path.rename(path.with_suffix(".forged"))
    path.symlink_to(path.with_suffix(".forged"))


def as_hardlink(path: Path, victim: Path) -> None:
    path.unlink()
    path.hardlink_to(victim)


def as_pipe(path: Path, victim: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_forgery(path: Path, victim: Path) -> None:
    os.chown(path, ATTACKER, ATTACKER)


def as_changeable(path: Path, victim: Path) -> None:
    os.chown(path, 0, ATTACKER)
    path.chmod(0o664)


WAYS = [as_symlink, as_symlink_to_a_forgery, as_hardlink, as_pipe, as_forgery, as_changeable]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_planted_file_is_made_anew(
    opened: Callable[[], Dataset],
    victim: Path,
    suffix: str,
    way: Callable[[Path, Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset = opened()
    expected, place = everything(dataset), place_of(dataset)
    path = next(place.glob(f"*{suffix}"))
    way(path, victim)
    if suffix != ".dataset.json":
        next(place.glob("*.dataset.json")).unlink()
    assert everything(opened()) == expected
    assert victim.read_bytes() == b"precious"
    found = path.lstat()
    assert stat.S_ISREG(found.st_mode)
    assert (found.st_uid, found.st_mode & 0o022, found.st_nlink) == (0, 0, 1)
    lines = [record.getMessage() for record in caplog.records]
    if way is as_hardlink:
        # It is a file of ours, and no index.
        assert lines == [f"{path}: is damaged, and made again"] * (suffix != ".dataset.json")
    else:
        assert len(lines) == 1
        assert lines[0].startswith(f"{path}: ")
        assert lines[0].endswith(": ignored and rebuilt; --trust USER accepts what they write")
    caplog.clear()
    assert everything(opened()) == expected
    assert not caplog.records


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_planted_directory_leaves_the_index_in_memory(
    opened: Callable[[], Dataset], suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = opened()
    expected, place = everything(dataset), place_of(dataset)
    path = next(place.glob(f"*{suffix}"))
    path.unlink()
    path.mkdir()
    if suffix != ".dataset.json":
        next(place.glob("*.dataset.json")).unlink()
    dataset = opened()
    assert everything(dataset) == expected
    if suffix != ".dataset.json":  # without that file all goes on, only slower
        assert caplog.records[-1].getMessage().endswith(": the index is kept in memory")
        used = {Path(path).parent for path in (dataset.keys.path, *(shard.catalog for shard in dataset.shards))}
        (in_memory,) = used - {place}
        assert in_memory.stat().st_mode & 0o777 == 0o700


def another_owner(place: Path) -> None:
    os.chown(place, ATTACKER, ATTACKER)


def group_writable(place: Path) -> None:
    os.chown(place, 0, ATTACKER)
    place.chmod(0o775)


def a_link_of_theirs(place: Path) -> None:
    place.rename(place.with_name(".elsewhere"))
    place.symlink_to(".elsewhere")
    os.lchown(place, ATTACKER, ATTACKER)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("plant", [another_owner, group_writable, a_link_of_theirs], ids=lambda each: each.__name__)
def test_a_directory_of_others_is_not_used(
    source: Path, in_place: bool, plant: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    dataset = open_dataset(str(source), in_place=in_place)
    expected, place = everything(dataset), place_of(dataset)
    plant(place)
    before = {path: path.lstat() for path in place.iterdir()}
    dataset = open_dataset(str(source), in_place=in_place)
    assert everything(dataset) == expected
    assert place_of(dataset) != place
    assert {path: path.lstat() for path in place.iterdir()} == before
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["the index is kept in memory"]


def test_what_the_owner_of_the_data_indexed_is_believed(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = open_dataset(str(source), in_place=True)
    for path in [source, *source.rglob("*")]:
        os.chown(path, ATTACKER, ATTACKER)
    again = open_dataset(str(source), in_place=True, progress=lambda done, total: pytest.fail("indexed again"))
    assert everything(again) == everything(dataset)
    assert not caplog.records


def test_whom_the_user_trusts_is_believed(source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(str(source))
    for path in [cache, *cache.iterdir()]:
        os.chown(path, ATTACKER, ATTACKER)
    monkeypatch.setenv("TOUCHFS_TRUST", str(ATTACKER))
    again = open_dataset(str(source), progress=lambda done, total: pytest.fail("indexed again"))
    assert everything(again) == everything(dataset)


def test_one_that_is_planted_later_is_not_read(opened: Callable[[], Dataset]) -> None:
    dataset = opened()
    for suffix in (".arrow", ".keys"):
        for path in place_of(dataset).glob(f"*{suffix}"):
            os.chown(path, ATTACKER, ATTACKER)
    with pytest.raises(UntrustedError, match="belongs to nobody"):
        dataset.catalog(0)


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_an_index_is_for_us_alone_unless_it_is_beside_the_data(source: Path, cache: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        open_dataset(str(source))
        open_dataset(str(source), in_place=True)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in cache.iterdir()} == {0o600}
    assert cache.stat().st_mode & 0o777 == 0o700
    shared = source / ".touchfs-index"
    assert {path.stat().st_mode & 0o777 for path in shared.iterdir()} == {0o644 & ~umask}
    assert shared.stat().st_mode & 0o777 == 0o755 & ~umask


def test_a_cache_of_an_older_version_is_closed(source: Path, cache: Path) -> None:
    open_dataset(str(source))
    cache.chmod(0o755)
    open_dataset(str(source))
    assert cache.stat().st_mode & 0o777 == 0o700


def test_memory_is_given_back(source: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    os.chown(cache, ATTACKER, ATTACKER)
    place = place_of(open_dataset(str(source)))
    assert place.is_dir()
    in_memory.discard()
    assert not place.exists()
