"""An index that lies with its data: whoever opens them elsewhere indexes nothing, and believes only what fits."""

import hashlib
import json
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import s3fs
from command import TOUCHFS
from interleaved_tars import make_wds_tar, mint_sample
from range_server import range_server
from s3_server import s3_server, upload
from seals import resealed
from shown import dataset_files
from tars import write_tar

from touchfs.core.errors import SourceError, TouchfsError, UsageError
from touchfs.core.location import Location
from touchfs.indexing import list_dataset, open_dataset
from touchfs.indexing.published.fetch import INDEX_VARIABLE, published_beside
from touchfs.indexing.published.publish import publish_index
from touchfs.shard.options import DEFAULT
from touchfs.source.remote.kept import KEPT, KeptPieces

SHARDS = 5


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes this another machine: without index and blocks."""
    numbers = iter(range(100))

    def change():
        place = tmp_path / f"machine{next(numbers)}"
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(place / "scratch"))
        KEPT.forget()

    change()
    return change


@pytest.fixture(scope="module")
def s3():
    with pytest.MonkeyPatch.context() as patch, s3_server(patch) as client:
        yield client


@pytest.fixture
def data(tmp_path):
    for shard in range(SHARDS):
        write_shard(tmp_path / "data", shard)
    return tmp_path / "data"


def write_shard(place, shard, text="text"):
    place.mkdir(exist_ok=True)
    write_tar(place / f"{shard}.tar", {f"s{shard}-{i}.txt": f"{text} {shard} {i}".encode() for i in range(4)})


@pytest.fixture
def published(data, tmp_path, machine):
    """The directory of an index of `data`, on another machine."""
    prefix = tmp_path / "index"
    assert publish_index(open_dataset(str(data)), DEFAULT, str(prefix)) == SHARDS
    machine()
    return prefix


@pytest.fixture
def index(published, monkeypatch):
    """As `published`, for all commands."""
    monkeypatch.setenv(INDEX_VARIABLE, str(published))
    return published


def open_counted(source):
    """A dataset, and the paths of the shards that were indexed for it."""
    indexed = []
    dataset = open_dataset(str(source), indexed_now=indexed.append)
    return dataset, sorted(indexed)


def everything(dataset):
    return dataset_files(dataset), [dataset.find(f"s{shard}-2") for shard in range(SHARDS)]


class Requests:
    """What S3 is asked, by the name of the operation."""

    def __init__(self, monkeypatch):
        self.names = []
        call = s3fs.S3FileSystem._call_s3

        async def counted(client, method, *arguments, **options):
            self.names.append(f"{method} {options.get('Key', '')}".strip())
            return await call(client, method, *arguments, **options)

        monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", counted)


def test_another_machine_asks_s3_for_two_files(data, machine, s3, monkeypatch):
    make_wds_tar(data / "items.tar", [mint_sample(number) for number in range(3)])
    upload(s3, data, "data/set0")
    run = [TOUCHFS, "index", "--in-place", "--jobs", "1", "s3://data/set0"]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "s3://data/set0/.touchfs-index: index of 6 shards"
    monkeypatch.setattr(KeptPieces, "_keep", lambda *_: None)
    expected = everything(open_dataset("s3://data/set0"))
    machine()
    requests = Requests(monkeypatch)
    dataset, indexed = open_counted("s3://data/set0")
    assert indexed == []
    assert [name for name in requests.names if name.endswith(".tar")] == []
    assert len([name for name in requests.names if name.startswith("get_object")]) == 2
    assert dataset.interleaved.samples == 3
    asked = len(requests.names)
    assert everything(dataset) == expected
    requests.names.clear()
    open_dataset("s3://data/set0")
    assert len(requests.names) < asked
    assert not [name for name in requests.names if name.startswith("get_object")]


def test_one_shard_takes_its_catalog_alone(data, index):
    """The keys of all shards may be large: they are copied with all shards, not with one that is looked into."""
    part = open_dataset(str(data), below="shards/3")
    assert (len(part.find("s3-2")), part.find("s2-2")) == (1, [])
    assert list_dataset(str(data)).shard(1).samples == 4
    (cache,) = {Path(shard.catalog).parent for shard in part.shards}
    assert (len(list(cache.glob("*.arrow"))), len(list(cache.glob("*.keys")))) == (2, 1)
    assert open_counted(data)[1] == []
    assert len(list(cache.glob("*.keys"))) == 2


def test_a_shard_that_has_changed_is_indexed(data, index, machine):
    write_shard(data, 3, "other text")
    dataset, indexed = open_counted(data)
    assert indexed == [str(data / "3.tar")]
    files, found = everything(dataset)
    assert files["3/s3-0.txt"] == b"other text 3 0"
    assert files["2/s2-3.txt"] == b"text 2 3"
    assert [len(holders) for holders in found] == [1] * SHARDS
    assert publish_index(dataset, DEFAULT, str(index)) == SHARDS
    assert len(list(index.glob("*.pack"))) == len(list(index.glob("*.listing.json"))) == 1
    machine()
    assert open_counted(data)[1] == []


def test_an_index_of_other_data_is_a_line(data, index, tmp_path, caplog):
    """Also of shards of which some have changed. What fits is used."""
    write_tar(tmp_path / "other/x.tar", {"a.txt": b"a"})
    open_dataset(str(tmp_path / "other"))
    write_shard(data, 3, "other text")
    assert open_counted(data)[1] == [str(data / "3.tar")]
    open_dataset(str(data))
    advice = "indexing; write it again by `touchfs index --output` with these options"
    assert [record.getMessage() for record in caplog.records] == [
        f"{index}: its index does not fit 1 shard of {tmp_path}/other, such as x.tar: {advice}",
        f"{index}: its index does not fit 1 shard of {data}, such as 3.tar: {advice}",
    ]


def test_an_http_server_that_has_a_copy(data, published, machine, tmp_path):
    with range_server() as server:
        for path in data.iterdir():
            server.put(f"/set/{path.name}", path.read_bytes())
        prefix = tmp_path / "of-http"
        expected = everything(open_dataset(f"{server.url}/set"))
        publish_index(open_dataset(f"{server.url}/set"), DEFAULT, str(prefix))
        for path in prefix.iterdir():
            server.put(f"/set/.touchfs-index/{path.name}", path.read_bytes())
        machine()
        server.ranges.clear()
        dataset, indexed = open_counted(f"{server.url}/set")
        assert indexed == []
        assert not [path for path, _, _ in server.ranges if path.endswith(".tar")]
        assert everything(dataset) == expected
        machine()
        assert open_counted(f"{server.url}/set/3.tar")[1] == []  # the index of its directory


def test_other_options_have_an_index_of_their_own(index, data, caplog):
    from dataclasses import replace

    open_dataset(str(data), options=replace(DEFAULT, key_rule="last-dot"))
    assert [record.getMessage() for record in caplog.records] == [f"{index}: has no index for these options: indexing"]


@pytest.mark.parametrize("name", ["typo", "file"])
def test_an_index_that_is_not_there_is_a_line(data, machine, tmp_path, name):
    """Also when this machine has its own, and nothing would be taken from there."""
    machine()
    (tmp_path / "file").touch()
    for indexed in ("2 indexed now", "indexed already"):
        command = [TOUCHFS, "index", "--jobs", "1", data, "--index", tmp_path / name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr == f"touchfs: {tmp_path / name}: no such directory, so no index is taken from it\n"
        assert indexed.replace("2", str(SHARDS)) in done.stdout
    # Of the index that `--output` makes, the next one takes what there is.
    for warnings in (1, 0):
        command = [TOUCHFS, "index", "--jobs", "1", data, "--index", tmp_path / "made", "--output", tmp_path / "made"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr.count("\n") == warnings


def test_a_report_is_not_that_of_another_place(tmp_path, machine, s3):
    write_shard(tmp_path / "data", 0)
    whole = (tmp_path / "data/0.tar").read_bytes()
    (tmp_path / "data/1.tar").write_bytes(whole[:700])
    upload(s3, tmp_path / "data", "data/here")
    upload(s3, tmp_path / "data", "data/there")
    publish_index(open_dataset("s3://data/here"), DEFAULT, "s3://data/there/.touchfs-index")
    machine()
    dataset, indexed = open_counted("s3://data/there")
    assert indexed == ["s3://data/there/1.tar"]
    assert "s3://data/there/1.tar" in dataset.shards[1].report
    assert "here/1.tar" not in dataset.shards[1].report.replace("there", "")


def listing_of(index):
    (path,) = index.glob("*.listing.json")
    return path, json.loads(path.read_bytes())


def pack_of(index):
    (path,) = index.glob("*.pack")
    return path


def cut_pack(index):
    pack_of(index).write_bytes(pack_of(index).read_bytes()[:-1000])


def no_pack(index):
    pack_of(index).unlink()


def flipped_bytes(index):
    pack = bytearray(pack_of(index).read_bytes())
    for at in range(100, len(pack), 500):
        pack[at] ^= 1
    pack_of(index).write_bytes(pack)


def no_json(index):
    listing_of(index)[0].write_bytes(b"<html>")


def deep_json(index):
    listing_of(index)[0].write_bytes(b'{"files":' + b"[" * 100_000)


def huge_listing(index):
    with listing_of(index)[0].open("wb") as file:
        file.truncate(1 << 27)


def changed(**fields):
    def change(index):
        path, listing = listing_of(index)
        path.write_text(json.dumps(listing | fields))

    change.__name__ = "changed_" + next(iter(fields))
    return change


def with_entry(number, value):
    def change(index):
        path, listing = listing_of(index)
        for entry in listing["files"]:
            entry[number] = value
        path.write_text(json.dumps(listing))

    change.__name__ = f"with_entry_{number}_{str(value)[:10]}"
    return change


def huge_entry(index):
    """More than any disk has, in a file with a hole."""
    path, listing = listing_of(index)
    listing["size"] = listing["files"][-1][3] + (1 << 42)
    listing["files"] = [entry for entry in listing["files"] if entry[4]]
    listing["files"][-1][4] = 1 << 42
    path.write_text(json.dumps(listing))


WAYS = [
    *(cut_pack, no_pack, flipped_bytes, no_json, deep_json, huge_listing, huge_entry),
    changed(pack="../data/0.tar"),
    changed(pack=7),
    changed(size=-1),
    changed(files=7),
    changed(files=[["", ".keys"]]),
    changed(format="touchfs-index-2"),
    *(with_entry(1, "/../../../victim"), with_entry(1, ".dataset.json"), with_entry(1, None), with_entry(2, "")),
    *(
        with_entry(3, 0),
        with_entry(3, -1),
        with_entry(3, True),
        with_entry(4, 1 << 70),
        with_entry(5, ""),
        with_entry(5, "0"),
    ),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_does_not_fit_is_not_used(data, index, machine, way, caplog, tmp_path):
    way(index)
    before = {path: path.stat().st_mtime_ns for path in [*data.iterdir(), *index.iterdir()]}
    dataset, indexed = open_counted(data)
    assert indexed
    assert {path: path.stat().st_mtime_ns for path in [*data.iterdir(), *index.iterdir()]} == before
    place = Path(dataset.shards[0].catalog).parent
    assert {path.suffix for path in place.iterdir()} <= {".arrow", ".keys", ".json"}
    assert not (tmp_path / "victim").exists()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) <= 1
    assert all(line.startswith(f"{index}: ") and ": indexing" in line for line in lines)
    got = everything(dataset)
    machine()
    index.rename(tmp_path / "away")
    assert got == everything(open_dataset(str(data)))


def planted(index, change):
    """The same index with changed files, of which all checksums are right."""
    path, listing = listing_of(index)
    pack, offset = pack_of(index), 0
    old, new = pack.read_bytes(), b""
    for entry in listing["files"]:
        bytes_ = change(old[entry[3] : entry[3] + entry[4]], entry) if entry[4] else b""
        entry[3:] = offset, len(bytes_), hashlib.blake2b(bytes_, digest_size=16).hexdigest() if bytes_ else ""
        offset += len(bytes_)
        new += bytes_
    listing["size"] = len(new)
    pack.write_bytes(new)
    path.write_text(json.dumps(listing))


def test_files_that_are_no_catalogs_are_made_anew(data, index, machine, caplog):
    planted(index, lambda file, entry: b"no catalog")
    dataset, indexed = open_counted(data)
    assert len(indexed) == SHARDS
    assert [len(holders) for holders in everything(dataset)[1]] == [1] * SHARDS
    assert "its published catalog is damaged: indexed again" in caplog.text


def test_a_catalog_of_another_shard_is_made_anew(data, index, tmp_path):
    """Its name says that it is of the shard, and it says that it is not."""
    path, listing = listing_of(index)
    catalogs = [entry for entry in listing["files"] if entry[1] == ".arrow"]
    names = [entry[0] for entry in catalogs]
    for entry, name in zip(catalogs, [*names[1:], names[0]], strict=True):
        entry[0] = name
    versions = {entry[0]: entry[2] for entry in json.loads(path.read_bytes())["files"] if entry[1] == ".arrow"}
    for entry in catalogs:
        entry[2] = versions[entry[0]]
    path.write_text(json.dumps(listing))
    dataset, indexed = open_counted(data)
    assert len(indexed) == SHARDS
    assert everything(dataset)[0]["2/s2-3.txt"] == b"text 2 3"


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(i, marks=pytest.mark.variant) for i in range(3, 12))])
def test_planted_catalogs_crash_nobody(data, index, machine, seed):
    chooser = random.Random(seed)

    def change(file, entry):
        changed = bytearray(file)
        for _ in range(chooser.choice((1, 3, 30))):
            changed[chooser.randrange(len(changed))] = chooser.choice((0, 1, 0x7F, 0xFF, chooser.randrange(256)))
        return resealed(bytes(changed)) if entry[1] == ".arrow" else bytes(changed)

    planted(index, change)
    dataset = open_dataset(str(data))
    for shard in range(SHARDS):
        with suppress(TouchfsError):
            dataset.find(f"s{shard}-2")
        with suppress(TouchfsError):
            dataset.catalog(shard)
    with suppress(TouchfsError, AssertionError):  # it asserts that sizes are those that a stat tells
        dataset_files(dataset)


def failing(monkeypatch, error, part_of):
    """The client of S3 fails for a method and part of a key."""
    call = s3fs.S3FileSystem._call_s3

    async def fail(client, method, *arguments, **options):
        if method == part_of[0] and part_of[1] in options.get("Key", ""):
            raise error
        return await call(client, method, *arguments, **options)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", fail)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("", r"\.pack: cannot be written: the network is down"),
        (".listing.json", r"listing\.json: .* down; the index there is still the one before"),
    ],
)
def test_what_did_not_arrive_leaves_the_index_from_before(data, machine, s3, monkeypatch, part, why):
    place = f"data/set{len(part)}"
    upload(s3, data, place)
    publish_index(open_dataset(f"s3://{place}"), DEFAULT, published_beside(Location.of(f"s3://{place}")))
    before = s3.find(f"{place}/.touchfs-index")
    write_shard(data, 2, "other")
    s3.pipe(f"{place}/2.tar", (data / "2.tar").read_bytes())
    dataset = open_dataset(f"s3://{place}")
    with monkeypatch.context() as patch:
        failing(patch, OSError("the network is down"), ("put_object", part))
        with pytest.raises(SourceError, match=why):
            publish_index(dataset, DEFAULT, published_beside(Location.of(f"s3://{place}")))
    assert s3.find(f"{place}/.touchfs-index") == before, "no pack is left that nobody names"
    machine()
    assert open_counted(f"s3://{place}")[1] == [f"s3://{place}/2.tar"]


@pytest.mark.parametrize("part", [("get_object", ".listing.json"), ("delete_object", ".pack")])
def test_a_pack_that_stays_is_told(data, machine, s3, monkeypatch, caplog, part):
    """The old listing cannot be read, or the old pack cannot be removed."""
    place = f"data/{part[0]}"
    upload(s3, data, place)
    publish_index(open_dataset(f"s3://{place}"), DEFAULT, published_beside(Location.of(f"s3://{place}")))
    write_shard(data, 2, part[0])
    s3.pipe(f"{place}/2.tar", (data / "2.tar").read_bytes())
    dataset = open_dataset(f"s3://{place}")
    KEPT.forget()
    machine()  # with no blocks of the listing
    failing(monkeypatch, PermissionError("forbidden"), part)  # which is not tried again
    publish_index(dataset, DEFAULT, published_beside(Location.of(f"s3://{place}")))
    assert "stays there" in caplog.text
    assert len(s3.glob(f"{place}/.touchfs-index/*.pack")) == 2


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["index", "DATA", "--output", "https://host/x"], "https://host/x: nothing is written to https://"),
        (["index", "--in-place", "https://host/data"], "nothing is written to https://: take s3, gs, az or"),
        (["index", "DATA", "--output", "sftp://host/x"], "sftp://host/x: nothing is written to sftp://"),
        (["index", "--in-place", "sftp://host/data"], "sftp://host/data: nothing is written to sftp://"),
        (["index", "DATA", "DATA", "--output", "x"], "--output is for the index of one DATASET"),
        (["index", "DATA", "--output", "s3://me:secret@b/x"], "a URL must not hold a user or a password"),
        (
            ["ls", "--in-place", "memory://nowhere"],
            "`touchfs index --in-place` has written beside a URL is found without",
        ),
        (["index", "--jobs", "1", "DATA", "--output", "DATA/0.tar/x"], "cannot create the directory: Not a directory"),
    ],
)
def test_what_makes_no_sense_is_one_clear_line(data, machine, arguments, line):
    command = [TOUCHFS, *(argument.replace("DATA", str(data)) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert line in done.stderr
    assert "secret" not in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_url_with_an_index_of_its_own_place(data, machine, s3, tmp_path):
    """`--index` is for all commands, and may name another store than that of the data."""
    upload(s3, data, "data/set2")
    run = [TOUCHFS, "index", "--jobs", "1", "s3://data/set2", "--output", tmp_path / "kept"]
    subprocess.run(run, check=True, timeout=60)
    machine()
    run = [TOUCHFS, "info", "s3://data/set2", "--index", tmp_path / "kept", "--json"]
    assert json.loads(subprocess.run(run, check=True, capture_output=True, timeout=60).stdout)["samples"] == 20
    indexed = open_counted("s3://data/set2")[1]
    assert indexed == []


def test_a_writer_says_what_it_cannot_write(data, machine):
    with pytest.raises(UsageError, match="nothing is written to hf://"):
        publish_index(open_dataset(str(data)), DEFAULT, "hf://datasets/me/x")
