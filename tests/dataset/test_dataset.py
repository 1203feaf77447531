import json
import os
import pickle
import random
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from damage import flip_byte
from megatron import INT32, split, tokens, write_prefix
from seals import resealed_json
from shown import dataset_files
from touchnet import write_speech

from touchfs.caches.writers.arrow import write_sharded_arrow_cache
from touchfs.catalog.catalog import VERSION
from touchfs.catalog.keys import Keys
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, UsageError
from touchfs.dataset import Dataset
from touchfs.features import Features, Value
from touchfs.indexing import open_dataset
from touchfs.shard.options import Options


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/touchfs/index"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for i in range(3):
        write(tmp_path / f"data/{i:09d}", i)
    return tmp_path / "data"


def write(path: Path, number: int) -> None:
    samples = [{"key": f"utt{number}-{i}", "txt": f"text {i}", "sample_rate": 8000} for i in range(2)]
    write_speech(path, [(told, bytes([number]) * 16) for told in samples])


class Indexing:
    """Opens a source, and remembers how many shards were indexed for it."""

    count = 0

    def __call__(self, source: Path, **options: Any) -> Dataset:
        self.count = 0
        return open_dataset(str(source), indexed_now=self._indexed, **options)

    def _indexed(self, path: str) -> None:
        self.count += 1


@pytest.fixture
def indexing() -> Indexing:
    return Indexing()


def mark(directory: Path) -> None:
    """So that `written` can tell what is written from now on."""
    for name in os.listdir(directory):
        os.utime(directory / name, ns=(0, 0))


def written(directory: Path, suffix: str = "") -> int:
    names = [name for name in os.listdir(directory) if name.endswith(suffix)]
    return sum(os.stat(directory / name).st_mtime_ns != 0 for name in names)


def test_a_dataset(source: Path) -> None:
    dataset = open_dataset(str(source))
    assert [shard.name for shard in dataset.shards] == ["000000000", "000000001", "000000002"]
    assert dataset.by_name == {b"000000000": 0, b"000000001": 1, b"000000002": 2}
    assert (dataset.samples, dataset.seconds) == (6, 6 * 8 / 8000)
    files = dataset_files(dataset)
    assert len(files) == 18
    assert files["000000001/utt1-0.txt"] == b"text 0"
    assert files["000000001/utt1-0.wav"][44:] == b"\1" * 16
    assert dataset.size == sum(path.stat().st_size for path in source.glob("*/*.bin"))
    indexes = sum(path.stat().st_size for path in source.glob("*/*.idx"))
    catalog_size = sum(os.path.getsize(shard.catalog) for shard in dataset.shards)
    assert isinstance(dataset.keys, Keys)
    assert dataset.overhead == pytest.approx((indexes + catalog_size + dataset.keys.size) / dataset.size)


def test_an_indexed_dataset_opens_without_a_write(source: Path, cache: Path, indexing: Indexing) -> None:
    files = dataset_files(indexing(source))
    assert indexing.count == 3
    mark(cache)
    assert dataset_files(indexing(source)) == files
    assert indexing.count == 0
    assert written(cache) == 0
    assert open_dataset(str(source)).shards == indexing(source).shards


def test_relative_and_absolute_paths_are_one_source(
    source: Path, cache: Path, indexing: Indexing, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexing(source)
    monkeypatch.chdir(source.parent)
    indexing(Path("data"))
    assert indexing.count == 0


@pytest.fixture(params=["here", "threads", "processes"])
def executor(request: pytest.FixtureRequest, processes: Executor) -> Iterator[Executor | None]:
    with ThreadPoolExecutor(3) as threads:
        yield {"here": None, "threads": threads, "processes": processes}[request.param]


def test_indexing_in_an_executor(source: Path, executor: Executor | None) -> None:
    shutil.rmtree(source / "000000001")
    (source / "data.list").write_text("".join(f"{source}/{i:09d} audio+metainfo\n" for i in (2, 1, 0)))
    dataset = open_dataset(str(source), executor=executor)
    assert [shard.name for shard in dataset.shards] == ["000000002", "000000001", "000000000"]
    assert [shard.samples for shard in dataset.shards] == [2, 0, 2]
    assert set(dataset_files(dataset)) >= {"000000001/ERROR.txt", "000000002/utt2-1.wav"}


def test_only_a_shard_that_changed_is_indexed_again(source: Path, cache: Path, indexing: Indexing) -> None:
    old = indexing(source)
    mark(cache)
    write(source / "000000001", 7)
    new = indexing(source)
    assert indexing.count == 1
    assert written(cache, ".arrow") == 1
    same = [a.identity == b.identity for a, b in zip(old.shards, new.shards, strict=True)]
    assert same == [True, False, True]
    assert "000000001/utt7-0.wav" in dataset_files(new)
    indexing(source)
    assert indexing.count == 0
    with pytest.raises(ChangedError, match="mount again"):
        old.catalog(1)
    old.catalog(0)


@pytest.mark.parametrize("name", ["audio.bin", "audio.idx", "metainfo.bin", "metainfo.idx"])
def test_a_change_in_any_file_counts(source: Path, indexing: Indexing, name: str) -> None:
    indexing(source)
    path = source / "000000000" / name
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    indexing(source)
    assert indexing.count == 1


def test_shards_that_come_and_go(source: Path, indexing: Indexing) -> None:
    indexing(source)
    write(source / "000000003", 3)
    shutil.rmtree(source / "000000000")
    assert [shard.name for shard in indexing(source).shards] == ["000000001", "000000002", "000000003"]
    assert indexing.count == 1
    indexing(source)
    assert indexing.count == 0


def test_force_indexes_all(source: Path, cache: Path, indexing: Indexing) -> None:
    indexing(source)
    mark(cache)
    indexing(source, force=True)
    assert indexing.count == written(cache, ".arrow") == 3


def test_the_sample_rate_is_part_of_an_index(source: Path, indexing: Indexing) -> None:
    write_speech(source / "000000000", [({"key": "a"}, b"ab")])
    assert "000000000/a.pcm" in dataset_files(indexing(source))
    assert "000000000/a.wav" in dataset_files(indexing(source, options=Options(24000)))
    assert indexing.count == 3
    assert "000000000/a.pcm" in dataset_files(indexing(source))
    assert indexing.count == 0


@pytest.mark.parametrize("rate", [0, -1, 2**31])
def test_sample_rates_that_are_none(source: Path, rate: int) -> None:
    with pytest.raises(UsageError, match=f"a sample rate of {rate} Hz"):
        open_dataset(str(source), options=Options(rate))


def test_a_directory_of_megatron_prefixes(tmp_path: Path, indexing: Indexing) -> None:
    """Each is a shard, called by its prefix, and indexed again when it alone changes."""
    for count, name in enumerate(["a_text_document", "b_text_document", "c"], 1):
        write_prefix(tmp_path / "data" / name, INT32, [tokens(*range(count))] * count)
    split(str(tmp_path / "data/c"), [7], 2)
    dataset = indexing(tmp_path / "data")
    assert [(shard.name, shard.samples, shard.size) for shard in dataset.shards] == [
        ("a_text_document", 1, 4),
        ("b_text_document", 2, 16),
        ("c", 3, 36),
    ]
    files = dataset_files(dataset)
    assert [len(data) for _, data in sorted(files.items())] == [128 + 4 * n for n in (1, 2, 2, 3, 3, 3)]
    assert dataset.shards[2].source("c.bin").read(0, 12) == tokens(0, 1, 2).tobytes()
    indexing(tmp_path / "data")
    assert indexing.count == 0
    (tmp_path / "data/c-00001-of-00002.bin").touch()
    changed = indexing(tmp_path / "data")
    assert indexing.count == 1
    assert changed.shards[2].identity != dataset.shards[2].identity
    assert dataset_files(changed) == files
    os.unlink(tmp_path / "data/c-00001-of-00002.bin")
    assert "has no c-00001-of-00002.bin beside it" in indexing(tmp_path / "data").shards[2].report
    assert indexing(tmp_path / "data/a_text_document").samples == 1
    (tmp_path / "data").rename(tmp_path / "moved")
    indexing(tmp_path / "moved", in_place=True)
    (tmp_path / "moved").rename(tmp_path / "again")
    mark(tmp_path / "again/.touchfs-index")
    assert indexing(tmp_path / "again", in_place=True).samples == 3
    assert written(tmp_path / "again/.touchfs-index", ".arrow") == 0


def test_prefixes_of_one_name(tmp_path: Path) -> None:
    for name in ("en/train", "de/train", "de/train.idx"):
        write_prefix(tmp_path / name, INT32, [tokens(1)])
    dataset = open_dataset(str(tmp_path))
    assert [shard.name for shard in dataset.shards] == ["train", "train.idx", "train~2"]


# A list with shards that are not as they should be


def test_a_list_with_shards_missing_empty_and_crashed(source: Path, indexing: Indexing) -> None:
    write_speech(source / "empty", [])
    write(source / "crashed", 4)
    os.unlink(source / "crashed/audio.idx")
    os.unlink(source / "crashed/metainfo.idx")
    (source / "bare").mkdir()
    (source / "file").write_bytes(b"")
    names = ["000000002", "missing", "empty", "crashed", "bare", "file", "000000002", "000000000"]
    (source / "data.list").write_text("".join(f"{name} audio+metainfo\n" for name in names))
    dataset = indexing(source)
    files = dataset_files(dataset)
    assert [shard.name for shard in dataset.shards] == [*names[:6], "000000002~2", "000000000"]
    assert [shard.samples for shard in dataset.shards] == [2, 0, 0, 0, 0, 0, 2, 2]
    wrong = {
        "missing": "no such shard",
        "crashed": "has no index",
        "bare": "not a TouchNet shard",
        "file": "is not a directory",
    }
    for shard in dataset.shards:
        assert (wrong.get(shard.name, "") in shard.report) and bool(shard.report) == (shard.name in wrong)
        assert files.get(f"{shard.name}/ERROR.txt", b"").decode() == shard.report
    assert files["000000002/utt2-0.wav"] == files["000000002~2/utt2-0.wav"]
    indexing(source)
    assert indexing.count == 1, "`file` could not be listed, and is tried again; nothing else is"
    write(source / "missing", 5)
    os.unlink(source / "file")
    write(source / "file", 6)
    dataset = indexing(source)
    assert indexing.count == 2
    assert [shard.samples for shard in dataset.shards] == [2, 2, 0, 0, 0, 2, 2, 2]


def test_shards_of_one_name_and_names_that_are_none(tmp_path: Path) -> None:
    paths = [
        tmp_path / "a/0",
        tmp_path / "b/0",
        tmp_path / "b/0~2",
        tmp_path / ".touchfs",
        tmp_path / os.fsdecode(b"\xff"),
    ]
    for i, path in enumerate(paths):
        write(path, i)
    listing = tmp_path / "data.list"
    listing.write_bytes(b"".join(os.fsencode(path) + b" audio\n" for path in paths))
    dataset = open_dataset(str(listing))
    assert [shard.name for shard in dataset.shards] == ["0", "0~3", "0~2", "%2Etouchfs", "%FF"]
    assert dataset_files(dataset)["%FF/utt4-0.wav"][44:] == b"\4" * 16
    assert open_dataset(str(listing)).shards == dataset.shards


def test_sources_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing\n")
    with pytest.raises(FormatError, match="line 1"):
        open_dataset(str(tmp_path / "notes.txt"))
    for name in ("missing", "."):
        with pytest.raises(NotFoundError):
            open_dataset(str(tmp_path / name))


# An index that is not as it should be


def dataset_file(cache: Path) -> Path:
    [path] = cache.glob("*.dataset.json")
    return path


GOOD = b'{"crc32": "00000000", "version": %d, "source": "x", "shards": %%s}' % VERSION


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage \xff",
        b"[]",
        b"null",
        b"[" * 100_000,
        *(resealed_json(GOOD % shards) for shards in (b"3", b"[3]", b"[{}]", b'[{"path": "x"}]')),
        b'{"version": 99}',
    ],
)
def test_a_dataset_file_that_is_damaged_is_made_anew(
    source: Path, cache: Path, indexing: Indexing, content: bytes
) -> None:
    shards = indexing(source).shards
    mark(cache)
    dataset_file(cache).write_bytes(content)
    assert indexing(source).shards == shards
    assert written(cache, ".arrow") == 0, "what the catalogs tell was not used"
    indexing(source)
    assert indexing.count == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("samples", "3"), ("catalog", 1), ("report", None), ("files", {"audio.bin": {}}), ("seconds", [])],
)
def test_a_dataset_file_with_values_of_other_types(
    source: Path, cache: Path, indexing: Indexing, field: str, value: Any
) -> None:
    shards = indexing(source).shards
    told = json.loads(dataset_file(cache).read_bytes())
    told["shards"][1][field] = value
    dataset_file(cache).write_bytes(resealed_json(json.dumps(told).encode()))
    assert indexing(source).shards == shards


@pytest.mark.parametrize("word", [b'"crc32": "', b'"version": ', b'"catalog": "/', b'"samples": ', b'"seconds": '])
def test_no_changed_bit_of_a_dataset_file_is_believed(
    source: Path, cache: Path, indexing: Indexing, word: bytes
) -> None:
    """It would be another number of samples, or the catalog of another shard."""
    shards = indexing(source).shards
    path = dataset_file(cache)
    flip_byte(path, path.read_bytes().index(word) + len(word))
    assert indexing(source).shards == shards
    assert indexing.count == 0


def test_a_dataset_file_that_cannot_be_read_or_written(source: Path, cache: Path, indexing: Indexing) -> None:
    shards = indexing(source).shards
    path = dataset_file(cache)
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    assert indexing(source).shards == shards


def test_a_catalog_that_is_gone_is_made_anew(source: Path, cache: Path, indexing: Indexing) -> None:
    dataset = indexing(source)
    files = dataset_files(dataset)
    os.unlink(dataset.shards[0].catalog)
    assert dataset_files(indexing(source)) == files
    assert indexing.count == 1


@pytest.mark.parametrize("found_by", ["opening", "use", "another process"])
@pytest.mark.parametrize("way", ["garbage", "cut short", "one bit"])
def test_a_damaged_catalog_is_made_anew_and_told_once(
    source: Path, cache: Path, indexing: Indexing, found_by: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = indexing(source)
    files, catalog = dataset_files(dataset), Path(dataset.shards[1].catalog)
    whole = catalog.read_bytes()
    if way == "one bit":
        flip_byte(catalog, len(whole) // 2)
    else:
        catalog.write_bytes(whole[:1000] if way == "cut short" else os.urandom(len(whole)))
    if found_by == "opening":
        dataset_file(cache).unlink()
    again = indexing(source)
    assert indexing.count == (found_by == "opening" or way == "cut short")
    if found_by == "another process":
        again = pickle.loads(pickle.dumps(again))
    assert dataset_files(again) == files
    assert catalog.read_bytes() == whole
    assert dataset_files(indexing(source)) == files
    assert [record.getMessage() for record in caplog.records] == [f"{catalog}: is damaged, and made again"]


def test_a_catalog_of_another_shard_is_not_used(source: Path, cache: Path, indexing: Indexing) -> None:
    dataset = indexing(source)
    files = dataset_files(dataset)
    shutil.copy(dataset.shards[0].catalog, dataset.shards[1].catalog)
    with pytest.raises(ChangedError):
        indexing(source).catalog(1)
    dataset_file(cache).unlink()
    assert dataset_files(indexing(source)) == files


def test_where_no_cache_can_be_written_the_index_is_in_memory(
    source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`/proc` takes no files, not even from root."""
    for place in ("/proc", str(source / "000000000/audio.bin")):
        monkeypatch.setenv("XDG_CACHE_HOME", place)
        caplog.clear()
        dataset = open_dataset(str(source))
        assert not any(shard.catalog.startswith(place) for shard in dataset.shards)
        assert f"{place}/touchfs/index: no index can be written: " in caplog.text


def test_a_cache_that_is_full_of_something_else(source: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    dataset = open_dataset(str(source))
    files = dataset_files(dataset)
    catalog = Path(dataset.shards[0].catalog)
    catalog.unlink()
    catalog.mkdir()
    (catalog / "in the way").touch()
    caplog.clear()
    again = open_dataset(str(source), force=True)
    assert dataset_files(again) == files
    assert [record.getMessage() for record in caplog.records] == [
        f"{catalog}: cannot be written: Is a directory: the index is kept in memory"
    ]
    assert (catalog / "in the way").exists()


# Beside the data


def test_in_place(source: Path, cache: Path, indexing: Indexing) -> None:
    files = dataset_files(indexing(source, in_place=True))
    assert not cache.exists()
    assert len(os.listdir(source / ".touchfs-index")) == 5
    assert dataset_files(indexing(source, in_place=True)) == files
    assert indexing.count == 0


def test_an_index_in_place_moves_with_the_data(source: Path, indexing: Indexing) -> None:
    files = dataset_files(indexing(source, in_place=True))
    mark(source / ".touchfs-index")
    moved = source.rename(source.parent / "elsewhere")
    dataset = indexing(moved, in_place=True)
    assert dataset_files(dataset) == files
    assert written(moved / ".touchfs-index", ".arrow") == 0
    assert all(shard.path.startswith(str(moved)) for shard in dataset.shards)


def test_in_place_beside_a_list(source: Path, indexing: Indexing) -> None:
    (source / "data.list").write_text("000000002 audio\n000000000 audio\n")
    dataset = indexing(source / "data.list", in_place=True)
    assert [shard.name for shard in dataset.shards] == ["000000002", "000000000"]
    assert len(list((source / ".touchfs-index").glob("*.arrow"))) == 2


def test_the_same_shards_from_another_source_are_not_indexed_again(
    source: Path, cache: Path, indexing: Indexing
) -> None:
    indexing(source)
    mark(cache)
    (source.parent / "data.list").write_text(f"{source}/000000001 audio\n")
    assert indexing(source.parent / "data.list").samples == 2
    assert written(cache, ".arrow") == 0


@pytest.mark.parametrize(("shuffled", "most"), [(False, 45), (True, 53)])
def test_the_index_of_json_lines_is_small(tmp_path: Path, shuffled: bool, most: int) -> None:
    """Bytes of catalog and keys for each line of 214 bytes, which has a key of 10: for any order of the keys."""
    count = 20_000
    numbers = random.Random(0).sample(range(count), count) if shuffled else range(count)
    lines = [json.dumps({"id": f"utt{number:07d}", "text": "x" * 181}) for number in numbers]
    assert {len(line) for line in lines} == {213}
    (tmp_path / "x.jsonl").write_text("".join(f"{line}\n" for line in lines))
    dataset = open_dataset(str(tmp_path / "x.jsonl"))
    assert isinstance(dataset.keys, Keys)
    assert (dataset.shards[0].catalog_size + dataset.keys.size) / count < most


@pytest.mark.parametrize("kind", ["tar", "jsonl", "touch", "shar"])
@pytest.mark.parametrize("here", [False, True])
def test_progress_within_one_shard(tmp_path: Path, kind: str, here: bool, processes: Executor) -> None:
    """Counts bytes, and goes on while the shard is scanned, and while its samples are added and named."""
    count = 2000
    lines = [json.dumps({"id": f"{i}", "duration": 1, "supervisions": [], "lang": "en"}) + "\n" for i in range(count)]
    if kind == "tar":
        with tarfile.open(tmp_path / "x.tar", "w") as tar:
            for i in range(count):
                tar.addfile(tarfile.TarInfo(f"{i}.txt"))
    elif kind == "touch":
        write_speech(tmp_path / "x", [({"key": f"{i}", "sample_rate": 8000}, bytes(16)) for i in range(count)])
    else:
        (tmp_path / ("cuts.000000.jsonl" if kind == "shar" else "x.jsonl")).write_text("".join(lines))
    told: list[tuple[int, int]] = []
    open_dataset(
        str(tmp_path),
        executor=None if here else processes,
        progress=lambda done, total: told.append((done, total)),
        in_place=True,
    )
    size = sum(
        path.stat().st_size for path in tmp_path.rglob("*") if path.is_file() and ".touchfs-index" not in path.parts
    )
    assert {total for _, total in told} == {size}
    done = [done for done, _ in told]
    assert (done[0], done[-1]) == (0, size)
    assert done == sorted(done)
    if here:
        assert len(set(done)) > 2 * count // 256


def test_a_dataset_without_shards_makes_the_place_of_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_sharded_arrow_cache(iter([]), Features(n=Value("int64")), tmp_path / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    with caplog.at_level("WARNING"):
        assert open_dataset(str(tmp_path / "cache")).shards == ()
    assert not caplog.records
    assert [path.suffix for path in (tmp_path / "new/touchfs/index").iterdir()] == [".keys"]
