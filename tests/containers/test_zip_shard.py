"""A ZIP archive as a shard: the samples of a tar with the same members, and no bytes that its directory only claims."""

from __future__ import annotations

import json
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest
from conformance import Expected, check_reads, check_shard, check_source
from tars import write_tar
from wav_files import wav_of

import touchfs
from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.zip import ZipTarget
from touchfs.containers.zip import reader as zip_shard
from touchfs.containers.zip.writer import ZipWriter
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError
from touchfs.core.extent import Extent
from touchfs.core.location import Location
from touchfs.filesystem import TouchFileSystem
from touchfs.indexing import open_dataset
from touchfs.limits import LIMITS, Limits
from touchfs.registry.containers import ZIP
from touchfs.registry.find import find, find_shards
from touchfs.registry.open import fingerprints, open_shard, open_source
from touchfs.shard.options import LAST_DOT, Options
from touchfs.source.store import StoredFile
from touchfs.stream.open import open_streams

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
METHODS = pytest.mark.parametrize("method", [STORED, pytest.param(DEFLATED)], ids=["stored", "deflated"])


TALK = json.dumps({"txt": "hi", "segments": [{"start": 0.5, "end": 1.0, "text": "hi"}]}).encode()
MEMBERS = {
    "a/0001.wav": wav_of(bytes(range(256)) * 125),
    "a/0001.JSON": b"{}",
    "a/0001.seg.png": b"p" * 1000,
    "talk.wav": wav_of(bytes(range(256)) * 125),
    "talk.json": TALK,
    "empty.txt": b"",
    "./dotted.txt": b"step",
    "a/0001.txt": b"late",
    "übung.txt": "Ü".encode(),
    "README": b"no field",
    ".hidden": b"h",
}


def write_zip(path: Path, members: dict[str, bytes], method: int = STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tree(dataset: object) -> dict[str, bytes]:
    """All files of a dataset in its tree, but those that name its shards."""
    root = TouchFileSystem(str(dataset))
    return {name: root.cat_file(name) for name in root.find("") if not name.startswith("manifests")}


def streamed(path: Path) -> list[tuple[str, dict[str, bytes]]]:
    (stream,) = open_streams(str(path))
    samples = [make() for _, make in stream.samples([])]
    return [(each.key, {extension: bytes(each[extension]) for extension in each}) for each in samples]


def listed(path: Path, options: Options = Options()) -> list[tuple[str, dict[str, bytes]]]:  # noqa: B008
    shard = open_shard(str(path), options)
    sources = {}

    def data(field):
        source = sources.setdefault(field.source, open_source(str(path), field.source, shard.files))
        return bytes(
            field.form.content(Extent(source, field.offset, field.size), field.detail, LIMITS).read(0, 1 << 30)
        )

    return [(each.key, {n: data(f) for n, f in each.fields.items()}) for each in shard] + [
        (name, {"": data(field)}) for name, field in shard.others
    ]


@METHODS
@pytest.mark.parametrize("rule", ["first-dot", LAST_DOT])
def test_samples_are_those_of_the_tar(tmp_path, method, rule):
    options = Options(key_rule=rule)
    archive = write_zip(tmp_path / "x.zip", MEMBERS, method)
    assert listed(archive, options) == listed(write_tar(tmp_path / "x.tar", MEMBERS), options)
    ours, theirs = (open_shard(str(tmp_path / name), options) for name in ("x.zip", "x.tar"))
    assert [(s.recording and s.recording.length) for s in ours] == [
        (s.recording and s.recording.length) for s in theirs
    ]


@METHODS
def test_the_promises_of_shards_and_sources(tmp_path, method):
    members = {"a.wav": b"one", "a.txt": b"two" * 99, "d/": b"", "a.WAV": b"again", "b.txt": b""}
    path = write_zip(tmp_path / "x.zip", members, method)
    check_shard(
        lambda: open_shard(str(path)),
        [
            Expected("a", {"wav": b"one", "txt": b"two" * 99}),
            Expected("a", {"wav": b"again"}),
            Expected("b", {"txt": b""}),
        ],
    )


@pytest.mark.parametrize("window", [LIMITS.window, 1000], ids=["memory", "scratch"])
def test_the_promises_of_a_deflated_source(tmp_path, monkeypatch, window):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setattr(zip_shard, "LIMITS", Limits(window=window))
    paths = iter(range(9))

    def source(data: bytes) -> StoredFile:
        name = f"{next(paths)}.zip"
        path = str(write_zip(tmp_path / name, {"stored/": b"", "x.bin": data, "empty.txt": b""}, DEFLATED))
        opened = open_source(path, f"{name}!", fingerprints(path))
        check_reads(Extent(opened, 0, len(data)), data)
        assert opened.size == len(data)
        return opened

    check_source(source)


def test_archives_of_info_zip(tmp_path):
    """With sizes before and after the data, also in ZIP64; with a comment, and after other bytes."""
    for name, data in {"0001.txt": b"one" * 500, "0001.json": b"{}", "d/0002.txt": b"two"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    expected = {"0001": {"txt": b"one" * 500, "json": b"{}"}, "d/0002": {"txt": b"two"}}
    for options in ("-r", "-0r", "-rfd", "-rfz-"):
        subprocess.run(["zip", "-q", options, "x.zip", "0001.txt", "0001.json", "d"], cwd=tmp_path, check=True)
        assert dict(listed(tmp_path / "x.zip")) == expected, options
        (tmp_path / "x.zip").unlink()
    made = subprocess.run(
        ["zip", "-qr", "-", "0001.txt", "0001.json", "d"], cwd=tmp_path, check=True, stdout=subprocess.PIPE
    )
    (tmp_path / "x.zip").write_bytes(b"#!/bin/sh\n" + made.stdout)
    with zipfile.ZipFile(tmp_path / "x.zip", "a") as archive:
        archive.comment = b"PK\1\2 a comment"
    assert dict(listed(tmp_path / "x.zip")) == expected


def test_members_with_the_sizes_of_zip64(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("a.txt", "b.txt"):
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(name.encode())
    assert listed(tmp_path / "x.zip") == [("a", {"txt": b"a.txt"}), ("b", {"txt": b"b.txt"})]


def test_members_that_cannot_be_shown_are_told(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("good.txt", b"good")
        archive.writestr("secret.txt", b"secret")
        archive.writestr("lzma.txt", b"x" * 99, zipfile.ZIP_LZMA)
        archive.writestr("large.txt", bytes(5000), DEFLATED)
        for name in ("../out.txt", "a/../../b.txt", "c\\..\\d.txt", "x" * 2000 + ".txt"):
            archive.writestr(name, b"")
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    planted = bytearray((tmp_path / "x.zip").read_bytes())
    planted[planted.index(b"PK\1\2", planted.index(b"PK\1\2") + 1) + 8] |= 1
    (tmp_path / "x.zip").write_bytes(planted)
    shard = open_shard(str(tmp_path / "x.zip"), Options(limits=Limits(decoded=4999)))
    assert [sample.key for sample in shard] == ["good"]
    told = ["encrypted", "method 14", "over 4,999 bytes: --max-decoded", *["leads out"] * 3, "too long", "is a link"]
    assert len(shard.problems) == len(told)
    for problem, each in zip(shard.problems, told, strict=True):
        assert each in problem, problem
        assert "\n" not in problem


def planted(place: int, form: str, value: object, member: int = 0, *, local: bool = False):
    """A change of a number in the directory's entry of a member, or in its header."""

    def change(data: bytearray) -> None:
        at = -1
        for _ in range(member + 1):
            at = data.index(b"PK\3\4" if local else b"PK\1\2", at + 1)
        struct.pack_into(form, data, at + place, value)

    return change


def cut(data: bytearray) -> None:
    del data[-30:]


# What is wrong, and whether that is of one member only.
PLANTED = [
    ("offset", planted(42, "<I", 1 << 30, 1), False),
    ("overlap", planted(42, "<I", 0, 1), False),
    ("stored size", planted(20, "<I", 400), False),
    ("bomb", planted(24, "<I", 1 << 31), False),
    ("size of the header", planted(22, "<I", 5, local=True), True),
    ("stored size of the header", planted(18, "<I", 5, local=True), True),
    ("checksum of the header", planted(14, "<I", 5, local=True), True),
    ("method of the header", planted(8, "<H", 0, local=True), True),
    ("name of the header", planted(30, "<B", 0x41, local=True), True),
    ("extra field of the header", planted(28, "<H", 60, local=True), True),
    ("signature", planted(0, "<B", 0, local=True), True),
    ("names of the directory", planted(28, "<H", 60_000), False),
    ("end", cut, False),
]


@pytest.mark.parametrize(("what", "change", "is_one"), PLANTED, ids=[case[0] for case in PLANTED])
def test_what_the_directory_only_claims_is_refused(tmp_path, what, change, is_one):
    data = bytearray(write_zip(tmp_path / "x.zip", {"a.txt": b"one" * 99, "b.txt": b"two" * 99}, DEFLATED).read_bytes())
    change(data)
    (tmp_path / "x.zip").write_bytes(data)
    if is_one:
        assert listed(tmp_path / "x.zip") == [("b", {"txt": b"two" * 99})]
        assert len(open_shard(str(tmp_path / "x.zip")).problems) == 1
    else:
        with pytest.raises(FormatError) as caught:
            open_shard(str(tmp_path / "x.zip"))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", [24, 16], ids=["size", "checksum"])
def test_a_member_is_decompressed_no_further_than_it_says(tmp_path, place):
    data = bytearray(write_zip(tmp_path / "x.zip", {"a.txt": bytes(90_000), "b.txt": b"two"}, DEFLATED).read_bytes())
    for start, at in ((b"PK\3\4", place - 2), (b"PK\1\2", place)):
        struct.pack_into("<I", data, data.index(start) + at, 7)
    (tmp_path / "x.zip").write_bytes(data)
    shard = open_shard(str(tmp_path / "x.zip"))
    (field,) = shard.sample(0).fields.values()
    source = open_source(str(tmp_path / "x.zip"), field.source, shard.files)
    with pytest.raises(FormatError, match="damaged"):
        source.read(field.offset, field.size)
    (field,) = shard.sample(1).fields.values()
    assert source.read(field.offset, field.size) == b"two"
    with pytest.raises(SourceError, match="index with --force"):
        source.read(0, field.offset + 1)


def test_an_archive_that_is_replaced_is_another_version(tmp_path):
    path = write_zip(tmp_path / "x.zip", {"a.txt": b"one"}, DEFLATED)
    source = open_source(str(path), "x.zip!", fingerprints(str(path)))
    assert source.read(0, 3) == b"one"
    write_zip(tmp_path / "y.zip", {"a.txt": b"other"}, DEFLATED).replace(path)
    source.close()
    with pytest.raises(ChangedError):
        source.read(0, 3)


def test_samples_shards_and_ordinary_files_are_told_apart(tmp_path):
    """By what is in the archive if it is named, or if nothing else is a shard; beside other shards it is left out."""
    shards = {
        "tars.zip": {"train/a.tar": b"", "train/b.tar.gz": b""},
        "images.zip": {"1.jpg": b"", "2.jpg": b"", "metadata.jsonl": b""},
        "pair.zip": {"audio.idx": b"", "audio.bin": b""},
        "shar.zip": {"cuts.000000.jsonl.gz": b"", "recording.000000.tar": b""},
    }
    for name, members in shards.items():
        path = write_zip(tmp_path / name, members)
        with pytest.raises(FormatError, match=r"is a zip archive that holds shards.*zip://::FILE is.*touchfs reads"):
            find_shards(str(path))
        with pytest.raises(FormatError, match="holds shards"):
            open_shard(str(path))
    with pytest.raises(NotFoundError, match=r"4 files left out: images\.zip, pair\.zip, shar\.zip and 1 more"):
        find_shards(str(tmp_path))
    for name, members in {"s": {"1.jpg": b"", "1.parquet": b""}, "o": {"README": b""}}.items():
        (tmp_path / name).mkdir()
        path = write_zip(tmp_path / name / "x.zip", members)
        for source in (str(path), str(path.parent), f"{path.parent}/*.zip", f"{path.parent}/{{x,y}}.zip"):
            assert find(Location.of(source)).shards[0].container is ZIP
    (tmp_path / "o" / "x.parquet").touch()  # does not describe it, as that of a tar does
    assert find_shards(f"{tmp_path}/o") == [f"{tmp_path}/o/x.parquet"]
    write_tar(tmp_path / "s" / "below" / "x.tar", {"1.jpg": b""})
    for source in (f"{tmp_path}/s", f"{tmp_path}/s/*"):
        found = find(Location.of(source))
        assert [shard.path for shard in found.shards] == [f"{tmp_path}/s/below/x.tar"]
        assert str(found.left_out).endswith("x.zip (a zip archive beside other shards: name it)")


@METHODS
def test_trees_streams_and_targets_are_those_of_the_tar(tmp_path, monkeypatch, method):
    """Read, streamed and written: keys, files and segments; converted back and forth, too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive, tar = write_zip(tmp_path / "x.zip", MEMBERS, method), write_tar(tmp_path / "x.tar", MEMBERS)
    expected = tree(tar)
    assert len([name for name in expected if name.startswith("segments/")]) == 3
    assert tree(archive) == expected
    assert streamed(archive) == streamed(tar)
    assert [dict(sample) for sample in touchfs.open(archive)] == [dict(sample) for sample in touchfs.open(tar)]
    convert(str(archive), str(tmp_path / "zips"), ZipTarget(2))
    convert(str(tar), str(tmp_path / "tars"), TarTarget(2))
    assert tree(tmp_path / "zips") == tree(tmp_path / "tars")
    convert(str(tmp_path / "zips"), str(tmp_path / "again"), ZipTarget(2))
    for path in sorted((tmp_path / "zips").iterdir()):
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
        with zipfile.ZipFile(path) as made:
            assert made.testzip() is None
            assert {member.compress_type for member in made.infolist()} == {STORED}


UNREADABLE = ["a/", "../a", "a\0b", "\udc80", "a" * 2000]


@pytest.mark.parametrize(
    ("key", "fields"), [*((key, {"txt": b""}) for key in UNREADABLE), ("a", {}), ("a", {"x/y": b""})], ids=ascii
)
def test_a_writer_refuses_what_readers_would(tmp_path, key, fields):
    with ZipWriter(tmp_path / "x.zip") as writer:
        with pytest.raises(FormatError):
            writer.add(key, fields)
        writer.add("good", {"txt": memoryview(b"good")})
        assert (len(writer), writer.is_full) == (1, False)
    assert listed(tmp_path / "x.zip") == [("good", {"txt": b"good"})]


def test_an_archive_is_full_before_readers_refuse_its_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("touchfs.containers.zip.writer.DIRECTORY_MAX", 1000)
    tar = write_tar(tmp_path / "x.tar", {f"{number}.txt": b"" for number in range(12)})
    convert(str(tar), str(tmp_path / "out"), ZipTarget(100))
    assert [len(open_shard(str(path))) for path in sorted((tmp_path / "out").iterdir())] == [7, 5]
    assert len(open_dataset(str(tmp_path / "out")).shards) == 2
