"""Shards in ZIP archives, on this machine and at URLs: `zip://NAME::ARCHIVE`."""

import gzip
import json
import os
import pickle
import random
import signal
import struct
import subprocess
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import TOUCHFS, in_one_process
from hypothesis import given
from hypothesis import strategies as st
from range_server import range_server
from tars import write_tar

import touchfs as library
from touchfs.cli.queries import without_queries
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.core.location import Location
from touchfs.core.urls import InArchive, parse_in_archive, shown
from touchfs.source.archived import directory
from touchfs.source.archived.archive import archive_at
from touchfs.source.data import DATA
from touchfs.source.remote.clients import with_query
from touchfs.source.remote.kept import KEPT
from touchfs.source.store import FileType

BYTES = random.Random(1).randbytes(1_000_000)
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED


@pytest.fixture(autouse=True)
def own_places(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    KEPT.forget()
    yield
    KEPT.forget()


def write_zip(path: Path, members: dict[str, bytes], compression: int = STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def shards(tmp_path) -> dict[str, bytes]:
    def tar(name: str, text: bytes) -> bytes:
        return write_tar(tmp_path / f"{name}.tar", {f"{name}{n}.txt": text + b"%d" % n for n in range(3)}).read_bytes()

    return {
        "train/a.tar": tar("a", b"hello "),
        "train/b.tar.gz": gzip.compress(tar("b", b"bye ")),
        "notes.txt": b"",
    } | {"more/c.tar": tar("c", b"more ")}


def touchfs(*arguments: object) -> str:
    done = subprocess.run([TOUCHFS, *in_one_process(*map(str, arguments))], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def texts(dataset: str) -> list[str]:
    return [sample.text for sample in library.open(dataset)]


TEXTS = ["hello 0", "hello 1", "hello 2", "bye 0", "bye 1", "bye 2"]


@pytest.mark.parametrize("compression", [STORED, DEFLATED], ids=["stored", "deflated"])
def test_shards_of_a_local_archive(tmp_path, monkeypatch, shards, compression):
    archive = write_zip(tmp_path / "all.zip", shards, compression)
    assert texts(f"zip://train::{archive}") == TEXTS
    assert texts(f"zip://train/::file://{archive}") == TEXTS
    assert texts(f"zip://train/a.tar::{archive}") == TEXTS[:3]
    assert texts(f"zip://{{train/a,more/c}}.tar::{archive}") == [*TEXTS[:3], "more 0", "more 1", "more 2"]
    monkeypatch.chdir(tmp_path)
    assert texts("zip://train::all.zip") == TEXTS
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    assert texts("zip://train::../all.zip") == TEXTS


def test_every_command_reads_them(tmp_path, shards):
    source = f"zip://train::{write_zip(tmp_path / 'all.zip', shards, DEFLATED)}"
    assert touchfs("ls", f"{source}:shards/a").split() == ["a0.txt", "a1.txt", "a2.txt"]
    assert touchfs("cat", f"{source}:shards/b/b1.txt") == "bye 1"
    assert touchfs("cat", f"{Location.of(source).path}:shards/b/b1.txt") == "bye 1"
    assert "2 shards, 6 samples" in touchfs("index", source)
    assert source in touchfs("storage", "ls")
    touchfs("convert", source, tmp_path / "out", "--to", "tar", "--jobs", 1)
    assert texts(str(tmp_path / "out")) == TEXTS
    assert "no problem" in touchfs("verify", source)
    assert touchfs("iterate", source).split() == [f"shards/{name}/{name}{n}.txt" for name in "ab" for n in range(3)]
    touchfs("cp", "-r", f"{source}:shards/a", tmp_path / "copied")
    assert (tmp_path / "copied" / "a2.txt").read_text() == "hello 2"


def test_an_archive_at_a_url_is_read_in_ranges(tmp_path):
    """Of a file of megabytes, only the blocks that are needed; another version is an error, and found by a new look."""
    archive = write_zip(tmp_path / "all.zip", {"a.bin": BYTES * 10, "b/c.bin": BYTES})
    with range_server() as server:
        url = server.put("/all.zip", archive.read_bytes())
        assert [entry.name for entry in DATA.list(f"zip://::{url}") if entry.is_dir()] == ["b"]
        file = DATA.open(f"zip://b/c.bin::{url}")
        assert file.read(500_000, 1000) == BYTES[500_000:501_000]
        assert file.size == len(BYTES)
        assert sum(stop - start for _, start, stop in server.ranges) < 5_000_000
        copy = pickle.loads(pickle.dumps(file))
        assert copy.read(len(BYTES) - 5, 5) == BYTES[-5:]
        server.put("/all.zip", write_zip(tmp_path / "all.zip", {"b/c.bin": BYTES[::-1]}).read_bytes())
        with pytest.raises(ChangedError):
            file.open()
        assert DATA.open(f"zip://b/c.bin::{url}").read(0, 9) == BYTES[::-1][:9]


def test_a_signature_is_not_in_the_arguments_of_daemons(monkeypatch):
    monkeypatch.setenv("TOUCHFS_URL_QUERIES", "{}")
    signed = "zip://train::https://host/all.zip?sig=planted"
    arguments = ["mount", signed, f"--index={signed}", "-o", f"ro,index={signed}", f"{signed[:3]}+{signed[13:]}!/x"]
    assert "planted" not in " ".join(without_queries(arguments))
    assert with_query("https://host/all.zip") == "https://host/all.zip?sig=planted"


def test_a_signature_is_sent_and_not_shown(tmp_path, shards):
    archive = write_zip(tmp_path / "all.zip", shards)
    with range_server() as server:
        url = server.put("/all.zip", archive.read_bytes())
        done = subprocess.run(
            [TOUCHFS, "info", f"zip://train::{url}?signature=planted"], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, "planted" in done.stdout + done.stderr) == (0, False), done.stderr
        missing = f"zip://train::{server.url}/no.zip?signature=planted"
        done = subprocess.run([TOUCHFS, "info", missing], capture_output=True, text=True, timeout=60)
        assert (done.returncode, "planted" in done.stderr, "Traceback" in done.stderr) == (1, False, False)
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"planted" in path.read_bytes() for path in kept)


def test_a_local_archive_that_is_replaced(tmp_path, shards):
    archive = write_zip(tmp_path / "all.zip", {"a.txt": b"one"})
    file = DATA.open(f"zip://a.txt::{archive}")
    assert file.read(0, 3) == b"one"
    write_zip(tmp_path / "new.zip", {"a.txt": b"two", "b.txt": b""})
    os.replace(tmp_path / "new.zip", archive)
    with pytest.raises(ChangedError):
        file.open()
    assert DATA.open(f"zip://a.txt::{archive}").read(0, 3) == b"two"


def test_what_is_not_there(tmp_path):
    archive = write_zip(tmp_path / "all.zip", {"a/b.txt": b"one"})
    assert DATA.stat(f"zip://a::{archive}").type is FileType.DIRECTORY
    for chain in (f"zip://b::{archive}", f"zip://a/b::{archive}", f"zip://a::{tmp_path}/none.zip"):
        with pytest.raises(NotFoundError):
            DATA.stat(chain)
        with pytest.raises(NotFoundError):
            DATA.open(chain).open()
    with pytest.raises(SourceError, match="no archive"):
        DATA.stat(f"zip://a::{tmp_path}")
    with pytest.raises(SourceError, match="ends here"):
        DATA.open(f"zip://a/b.txt::{archive}").read(2, 2)
    with pytest.raises(SourceError, match="leads out"):
        DATA.open_beneath(f"zip://a::{archive}", "../a/b.txt")
    assert DATA.open_beneath(f"zip://a::{archive}", "b.txt").read(0, 3) == b"one"


@pytest.mark.parametrize(
    "chain", ["zip://../a::/b.zip", "zip://a%2f..%2f..::/b.zip", "zip://a::/b!/c.zip", "zip+file://!/a"]
)
def test_names_that_lead_elsewhere_are_refused(chain):
    with pytest.raises(UsageError):
        Location.parse(chain)
    with pytest.raises(UsageError):
        DATA.stat(chain)


def test_members_that_lead_out_or_are_too_deep_are_not_seen(tmp_path):
    """Steps that do nothing are left out of names."""
    members = {"../x.tar": b"", "/etc/y.tar": b"y", "a//b": b"", "./good.txt": b"good", "c\\..\\d": b""}
    members |= {"d/" * 33 + "e": b"", "f" * 1025: b"", "d/" * 20_000 + "e": b""}
    archive = write_zip(tmp_path / "all.zip", members, DEFLATED)
    assert [entry.name for entry in DATA.list(f"zip://::{archive}")] == ["a", "etc", "good.txt"]
    assert DATA.open(f"zip://etc/y.tar::{archive}").read(0, 1) == b"y"
    assert DATA.open(f"zip://good.txt::{archive}").read(0, 4) == b"good"


def test_other_methods_of_compression_are_refused(tmp_path):
    """A few of their bytes may become any number at once."""
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        archive = write_zip(tmp_path / "all.zip", {"a.txt": bytes(10_000)}, method)
        with pytest.raises(SourceError, match="not by deflate"):
            DATA.open(f"zip://a.txt::{archive}").open()


def test_a_member_is_the_one_that_its_header_names(tmp_path):
    archive = write_zip(tmp_path / "all.zip", {"a.txt": b"one", "b.txt": b"two"})
    data = bytearray(archive.read_bytes())
    second = data.rindex(b"PK\1\2")
    struct.pack_into("<I", data, second + 42, 0)
    archive.write_bytes(data)
    with pytest.raises(FormatError, match=r"b\.txt is not where"):
        DATA.open(f"zip://b.txt::{archive}").open()


@pytest.mark.parametrize(
    ("place", "form", "number", "told"),
    [
        (b"PK\1\2", 20, 1 << 20, "is not where"),  # over what follows it
        (b"PK\1\2", 24, 1 << 31, "do not become"),
        (b"PK\3\4", 18, 5, "is not where"),
        (b"PK\3\4", 22, 5, "is not where"),
        (b"PK\3\4", 14, 5, "is not where"),
    ],
)
def test_a_directory_is_not_believed_against_the_headers(tmp_path, place, form, number, told):
    archive = write_zip(tmp_path / "all.zip", {"a.txt": b"one" * 99, "b.txt": b"two"}, DEFLATED)
    data = bytearray(archive.read_bytes())
    struct.pack_into("<I", data, data.index(place) + form, number)
    archive.write_bytes(data)
    with pytest.raises(FormatError, match=f"a.txt.* {told}|b.txt {told}"):
        DATA.open(f"zip://a.txt::{archive}").open()


def test_an_archive_without_a_version_is_decompressed_anew(tmp_path):
    """A server that sends neither etag nor time: what is kept of another archive is not taken for this one."""
    with range_server() as server:
        server.put("/all.zip", write_zip(tmp_path / "all.zip", {"a.txt": b"one " * 9}, DEFLATED).read_bytes())
        server.files["/all.zip"] = server.files["/all.zip"][0], ""
        url = f"zip://a.txt::{server.url}/all.zip"
        assert DATA.open(url).identity is None
        assert DATA.open(url).read(0, 4) == b"one "
        server.files["/all.zip"] = write_zip(tmp_path / "all.zip", {"a.txt": b"two " * 9}, DEFLATED).read_bytes(), ""
        archive_at.cache_clear()  # as another process
        assert DATA.open(url).read(0, 4) == b"two "


def test_a_fork_while_a_thread_looks(tmp_path):
    archive = f"zip://::{write_zip(tmp_path / 'all.zip', {'a.txt': b'one'})}"
    looking = True

    def look():
        while looking:
            DATA.stat(archive)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(look)
        try:
            for _ in range(5):
                if not (child := os.fork()):
                    signal.alarm(30)
                    os._exit(DATA.stat(archive).type is not FileType.DIRECTORY)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            looking = False


def test_an_encrypted_member_is_an_error(tmp_path):
    archive = write_zip(tmp_path / "all.zip", {"a.txt": b"one"})
    data = bytearray(archive.read_bytes())
    place = data.index(b"PK\1\2")
    data[place + 8] |= 1
    archive.write_bytes(data)
    with pytest.raises(SourceError, match="encrypted"):
        DATA.open(f"zip://a.txt::{archive}").read(0, 3)


def test_a_directory_is_read_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "DIRECTORY_MAX", 4000)
    archive = write_zip(tmp_path / "all.zip", {f"{number:060}.txt": b"" for number in range(100)})
    with pytest.raises(FormatError, match="unpack it"):
        DATA.list(f"zip://::{archive}")


def test_a_member_that_is_larger_than_it_says(tmp_path):
    """The directory says how much is decompressed, and the checksum must fit."""
    archive = write_zip(tmp_path / "all.zip", {"a.txt": bytes(1_000_000)}, DEFLATED)
    data = bytearray(archive.read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\1\2") + 24, 1000)
    archive.write_bytes(data)
    with pytest.raises(FormatError):
        DATA.open(f"zip://a.txt::{archive}").read(0, 1000)
    assert not list((tmp_path / "scratch").glob("*.scratch"))


@given(st.data())
def test_damaged_archives_are_errors_of_ours(tmp_path_factory, data):
    """Any bytes in the place of others: an error, or what the directory says is there."""
    place = tmp_path_factory.mktemp("damaged") / "all.zip"
    write_zip(place, {"a.txt": b"one" * 50, "b/c.txt": b"two"}, data.draw(st.sampled_from([STORED, DEFLATED])))
    content = bytearray(place.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    place.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        for entry in DATA.list(f"zip://::{place}"):
            if entry.is_file():
                file = DATA.open(f"zip://{entry.name}::{place}")
                assert len(file.read(0, file.size)) == file.size
    except TouchfsError:
        pass


@given(
    st.text(st.characters(blacklist_characters="\0:!/\\%", blacklist_categories=["Cs"])).filter(
        lambda t: ".." not in t
    ),
    st.sampled_from(["/data/a.zip", "s3://bucket/a.zip", "https://host:80/a.zip"]),
)
def test_both_forms_of_a_name_are_one(name, archive):
    chain = f"zip://{name}::{archive}"
    place = parse_in_archive(chain)
    assert place == InArchive(archive, name)
    assert parse_in_archive(place.path) == place
    assert Location.of(chain) == Location.of(place.path) == Location(place.path, "zip", place)
    assert shown(place.path) == chain
    assert parse_in_archive(os.path.join(place.path, "x.tar")) == InArchive(archive, f"{name}/x.tar".lstrip("/"))


def test_rows_of_a_parquet_file_in_an_archive(tmp_path):
    """The kind of a table is told by the name of the member, not by that of the archive."""
    pq.write_table(pa.table({"id": ["a"], "n": [1]}), tmp_path / "p.parquet")
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.write(tmp_path / "p.parquet", "p.parquet")
    name = f"zip://p.parquet::{tmp_path}/p.zip"
    assert json.loads(library.open(name)["a"]["json"])["n"] == 1
