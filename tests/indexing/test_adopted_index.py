"""Indexes of other tools beside a tar: the catalog is the one that reading the tar makes, or they are not used."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
import webdataset
from adopted_indexes import TOOLS, Place, places, wav, write, write_energon, write_wds2idx, write_webshart
from hypothesis import given
from hypothesis import strategies as st
from tars import add

from touchfs.containers.tar.adopted import adopt
from touchfs.containers.tar.adopted.adopt import adopted_members
from touchfs.containers.tar.adopted.wds2idx import parse
from touchfs.core.errors import FormatError
from touchfs.indexing import open_dataset
from touchfs.indexing.catalogs import make_catalog
from touchfs.limits import Limits
from touchfs.source.data import DATA

NOISE = np.random.default_rng(5).bytes(1 << 20)
PICTURE = NOISE[: 1 << 16]


def samples(count: int = 18) -> dict[str, bytes]:
    """Names and data of a tar of 1 MB."""
    files: dict[str, bytes] = {}
    for number in range(count):
        files |= {f"{number:03}.jpg": PICTURE, f"{number:03}.cls": b"%d" % (number % 3), f"{number:03}.empty": b""}
    return files


def plain(path: Path) -> Path:
    return write(path, samples())


def recordings(path: Path) -> Path:
    """Whose lengths and segments are read from the data."""
    files: dict[str, bytes] = {}
    for number in range(6):
        segments = {"segments": [{"start": 0.5, "end": 1 + number, "text": "one"}]}
        files |= {f"d/{number}.wav": wav(700_000 + number), f"d/{number}.json": json.dumps(segments).encode()}
    return write(path, {**files, "d/6.flac": b"no recording", "d/7.wav": b"cut"})


def by_webdataset(path: Path) -> Path:
    """Each member has a PAX header with its time."""
    with webdataset.TarWriter(str(path)) as writer:
        for number in range(18):
            writer.write({"__key__": f"d.e/k{number}", "jpg": PICTURE, "seg.TXT": b"text"})
    return path


def by_gnu_tar(path: Path) -> Path:
    place = path.parent / "files"
    place.mkdir()
    for name, data in samples().items():
        (place / name).write_bytes(data)
    names = sorted(os.listdir(place))
    subprocess.run(["tar", "--format=gnu", "-C", place, "-cf", path, *names], check=True)
    return path


def odd_names(path: Path) -> Path:
    """Keys that come again, capital letters, components that mean nothing."""
    files = samples()
    return write(path, {**files, "./a/B.JPG": b"1", "a//c.x.y": b"2", "a/d.": b"3", "e.é".replace("é", "e"): b"4"})


def without_end(path: Path) -> Path:
    """Cut within the zeros at its end, which is reported."""
    plain(path)
    last = places(path)[-1]
    os.truncate(path, last.offset + last.size)
    return path


TARS = (plain, recordings, by_webdataset, by_gnu_tar, odd_names, without_end)


def catalog_of(path: Path, *, adopt: bool) -> bytes:
    catalog = path.parent / f"catalog-{adopt}"
    make_catalog(str(path), str(catalog), adopt=adopt)
    return catalog.read_bytes()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "index" in record.getMessage()]


def check_refused(path: Path, caplog: pytest.LogCaptureFixture, *words: str) -> None:
    """The tar is read as without an index, and the log has one line."""
    caplog.clear()
    assert catalog_of(path, adopt=True) == catalog_of(path, adopt=False)
    (line,) = said(caplog)
    assert "is not used" in line
    assert all(word in line for word in words), line


@pytest.fixture(autouse=True)
def of_small_tars(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has all lines, and an index is looked for beside tars of 1 MB, too."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(adopt, "SIZE_MIN", 10**6)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("make", TARS)
def test_the_catalog_is_that_of_the_headers(
    make: Callable[[Path], Path], tool: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make(tmp_path / "a.tar")
    TOOLS[tool](path, places(path))
    read = catalog_of(path, adopt=False)
    assert said(caplog) == []
    assert catalog_of(path, adopt=True) == read
    (line,) = said(caplog)
    assert f"{len(places(path))} members are those of its index" in line


def test_headers_are_not_read(tmp_path: Path) -> None:
    """But for a dozen: damage to any other does not show."""
    path = write(tmp_path / "a.tar", {f"{number:04}.txt": b"x" * 5000 for number in range(1000)})
    listed = places(path)
    write_wds2idx(path, listed)
    with open(path, "r+b") as file:
        for place in listed[1:4]:
            file.seek(place.offset - 512)
            file.write(bytes(512))
    with closing(DATA.open(str(path))) as file:
        members = adopted_members(str(path), file, Limits())
    assert members is not None
    assert [(member.name, member.offset, member.size) for member in members] == listed


def test_a_dataset_is_indexed_by_them_unless_it_is_forced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    path = plain(shards / "a.tar")
    write_energon(path, places(path), root=tmp_path)
    dataset = open_dataset(str(shards))
    assert (dataset.samples, len(said(caplog))) == (18, 1)
    caplog.clear()
    assert open_dataset(str(shards), force=True).samples == 18
    assert said(caplog) == []


@pytest.mark.parametrize("form", ["list", "size"])
def test_other_forms_of_webshart(form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    write_webshart(path, places(path), size_key="size")
    if form == "list":
        index = json.loads(path.with_suffix(".json").read_text())
        listed = [{"filename": name, **entry} for name, entry in index["files"].items()]
        path.with_suffix(".json").write_text(json.dumps({"files": listed}))
    assert catalog_of(path, adopt=True) == catalog_of(path, adopt=False)
    assert "54 members" in said(caplog)[0]


def test_small_tars_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "a.tar", {"a.txt": b"text"})
    write_wds2idx(path, [Place("b.txt", 512, 4)])
    assert catalog_of(path, adopt=True) == catalog_of(path, adopt=False)
    assert said(caplog) == []


def test_many_short_recordings_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With their headers, which lie before them."""
    path = write(tmp_path / "a.tar", {f"{number}.wav": wav(10_000) for number in range(60)})
    write_wds2idx(path, places(path))
    check_refused(path, caplog, "the heads of its many recordings")


LIES: dict[str, tuple[Callable[[list[Place]], list[Place]], str]] = {
    "a wrong size": (lambda all: [*all[:4], all[4]._replace(size=9), *all[5:]], "has another header"),
    "a size past the end": (lambda all: [*all[:-1], all[-1]._replace(size=1 << 40)], "the tar ends at byte"),
    "shifted": (lambda all: [each._replace(offset=each.offset + 512) for each in all], "at byte 1024"),
    "overlapping": (lambda all: [*all, all[3]._replace(name="z.z")], "it says nothing of what is between"),
    "a name with ..": (lambda all: [all[0]._replace(name="../a.jpg"), *all[1:]], "is not the name of a file"),
    "another name": (lambda all: [all[0]._replace(name="b.jpg"), *all[1:]], "has another header"),
    "a gap": (lambda all: all[:7] + all[8:], "it says nothing of what is between"),
    "the first left out": (lambda all: all[1:], "no file at the start"),
    "the last ones left out": (lambda all: all[:-3], "the tar goes on for"),
    "nothing": (lambda all: [], "is empty"),
    "a negative size": (lambda all: [*all[:-1], all[-1]._replace(size=-1)], ""),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(lie: str, tool: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    change, words = LIES[lie]
    TOOLS[tool](path, change(places(path)))
    check_refused(path, caplog, words)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_newer_tar_is_read(tool: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Even one of the same size: other names, and the same ones in another order."""
    path = plain(tmp_path / "a.tar")
    TOOLS[tool](path, places(path))
    write(path, {f"n{name[1:]}": data for name, data in samples().items()})
    check_refused(path, caplog, "has another header")
    write(path, dict(reversed(samples().items())))
    check_refused(path, caplog)
    write(path, samples(20))
    check_refused(path, caplog)


HIDING: dict[str, dict[str, object]] = {
    "a file that tools skip": {"name": ".hidden"},
    "a link": {"name": "link.jpg", "type": tarfile.SYMTYPE, "linkname": "001.jpg"},
    "a hard link": {"name": "link.jpg", "type": tarfile.LNKTYPE, "linkname": "001.jpg"},
    "a directory": {"name": "directory", "type": tarfile.DIRTYPE},
    "a long name": {"name": "n" * 120 + ".jpg"},
}


@pytest.mark.parametrize("where", ["first", "between", "last"])
@pytest.mark.parametrize("what", HIDING)
def test_what_an_index_leaves_out_is_not_hidden(
    what: str, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, files = tmp_path / "a.tar", list(samples().items())
    made = tarfile.TarInfo("")
    for attribute, value in HIDING[what].items():
        setattr(made, attribute, value)
    place = {"first": 0, "between": 7, "last": len(files)}[where]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for number, (name, data) in enumerate([*files, ("", b"")]):
            if number == place:
                tar.addfile(made)
            if name:
                add(tar, name, data)
    for tool in ("wds2idx", "energon"):
        TOOLS[tool](path, places(path))
    assert catalog_of(path, adopt=True) == catalog_of(path, adopt=False)
    assert len(said(caplog)) == 2
    assert all("is not used" in line for line in said(caplog))


def test_a_second_archive_is_not_hidden(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    write_webshart(path, places(path))
    second = write(tmp_path / "b.tar", {"more.txt": b"text"}).read_bytes()
    with open(path, "ab") as file:
        file.write(second)
    index = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps({**index, "filesize": path.stat().st_size}))
    check_refused(path, caplog, "the tar goes on")
    path.with_suffix(".json").write_text(json.dumps(index))
    check_refused(path, caplog, "it is of a tar of")


def damaged(data: bytes) -> list[bytes]:
    noise = bytearray(data)
    noise[len(data) // 2] ^= 0xFF
    return [b"", data[:1], data[: len(data) // 2], data[:-2], bytes(noise), data[::-1], NOISE[:5000]]


@pytest.mark.parametrize("tool", TOOLS)
def test_damage_is_no_error(tool: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    read = catalog_of(path, adopt=False)
    TOOLS[tool](path, places(path))
    names = {"wds2idx": ["a.idx"], "webshart": ["a.json"], "energon": [".nv-meta/index.sqlite", ".nv-meta/.info.json"]}
    for name in names[tool]:
        right = (tmp_path / name).read_bytes()
        for wrong in damaged(right):
            (tmp_path / name).write_bytes(wrong)
            assert catalog_of(path, adopt=True) == read
        (tmp_path / name).write_bytes(right)


@pytest.mark.parametrize(
    "wrong",
    [
        b"[" * 100_000,
        b'{"files": 3}',
        b'{"files": {"a": 1}}',
        b'{"files": [[]]}',
        b'{"files": {"a": {"offset": true, "size": 1}}}',
        b'{"files": {"a": {"offset": 512.0, "size": 1}}}',
        b'{"files": {"a": {"offset": ' + b"9" * 5000 + b', "size": 1}}}',
        b'{"files": {"a": {"offset": 512}}}',
        b'{"files": {"a": {"offset": 512, "size": 1, "path": 3}}}',
    ],
)
def test_planted_json(wrong: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    path.with_suffix(".json").write_bytes(wrong)
    check_refused(path, caplog, "not the places of a tar's files")


def test_a_view_that_never_ends_is_not_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    write_energon(path, places(path))
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 1 tar_file_id, i sample_index"
    with closing(sqlite3.connect(tmp_path / ".nv-meta/index.sqlite")) as store, store:
        store.execute("ALTER TABLE samples RENAME TO others")
        store.execute(f"CREATE VIEW samples AS {endless}, 'k' sample_key FROM n")
    check_refused(path, caplog, "not Energon's tables")


def test_long_texts_of_tables_are_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    write_energon(path, [places(path)[0]._replace(name="a." + "b" * 100_000)])
    check_refused(path, caplog, "not Energon's tables")


def test_an_index_is_not_larger_than_is_sane(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    write_webshart(path, places(path))
    text = path.with_suffix(".json").read_text()
    path.with_suffix(".json").write_text(text + " " * (path.stat().st_size // 4))
    check_refused(path, caplog, "too many for a tar")
    path.with_suffix(".json").write_text(text)
    with closing(DATA.open(str(path))) as file:
        assert adopted_members(str(path), file, Limits(json=100)) is None
    assert "--max-json" in said(caplog)[-1]


def test_a_pipe_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = plain(tmp_path / "a.tar")
    os.mkfifo(tmp_path / "a.idx")
    (tmp_path / "a.json").mkdir()
    assert catalog_of(path, adopt=True) == catalog_of(path, adopt=False)
    assert said(caplog) == []


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda data: b"v1.2 1\n" + data))
def test_any_text_is_parsed_or_refused(data: bytes) -> None:
    with suppress(FormatError):
        parse(data, 0)
