"""A tar as a shard: what Python's tarfile puts in comes out, under the same paths."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conformance import Expected, check_shard
from hypothesis import example, given
from hypothesis import strategies as st
from shown import files
from webdataset.tariterators import group_by_keys, tar_file_expander

import touchfs
from touchfs.catalog.catalog import Catalog
from touchfs.containers.tar.layout.members import ReadAhead, scan
from touchfs.containers.tar.samples import split_name
from touchfs.containers.tar.tar_sound import SUFFIXES, measure
from touchfs.core.errors import FormatError
from touchfs.core.names import hex_digest, plain_path
from touchfs.dataset.samples import DatasetSamples
from touchfs.indexing import open_dataset
from touchfs.indexing.catalogs import make_catalog
from touchfs.registry.find import find_shards
from touchfs.registry.open import open_shard
from touchfs.shard.options import LAST_DOT, Options
from touchfs.shard.sample import StoredRecording, UnmeasuredRecording
from touchfs.stream.shard import ShardStream

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def member(name: str, data: bytes = b"", **told: object) -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.size = len(data)
    for attribute, value in told.items():
        setattr(made, attribute, value)
    return made, data


def write(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form, encoding="utf-8") as tar:
        for made, data in members:
            tar.addfile(made, io.BytesIO(data))
    return path


def shown(path: Path, options: Options = Options()) -> tuple[dict[str, bytes], str]:  # noqa: B008
    """The files that are shown, and the report."""
    catalog = str(path.parent / "catalog.arrow")
    facts = make_catalog(str(path), catalog, options)
    return {
        name: data for name, data in files(Catalog(catalog), str(path)).items() if name != "ERROR.txt"
    }, facts.report


def test_samples(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.tar",
        [
            member("a/b.wav", b"one"),
            member("a/b.JSON", b"{}"),
            member("a/b.seg.png", b"p" * 1000),
            member("d", type=tarfile.DIRTYPE),
            member("c.wav", b"two"),
            member("a/b.txt", b"late"),
            member("c.wav", b"again"),
            member("README", b"no field"),
            member(".hidden", b"h"),
        ],
    )
    check_shard(
        lambda: open_shard(str(path), Options()),
        [
            Expected("a/b", {"wav": b"one", "json": b"{}", "seg.png": b"p" * 1000, "txt": b"late"}),
            Expected("c", {"wav": b"two"}),
            Expected("c", {"wav": b"again"}),
        ],
    )
    check_shard(
        lambda: open_shard(str(path), Options(key_rule=LAST_DOT)),
        [
            Expected("a/b", {"wav": b"one", "json": b"{}", "txt": b"late"}),
            Expected("a/b.seg", {"png": b"p" * 1000}),
            Expected("c", {"wav": b"two"}),
            Expected("c", {"wav": b"again"}),
        ],
    )
    assert shown(path) == (
        {
            "a/b.wav": b"one",
            "a/b.JSON": b"{}",
            "a/b.seg.png": b"p" * 1000,
            "a/b.txt": b"late",
            "c.wav": b"two",
            "c~2.wav": b"again",
            "README": b"no field",
            ".hidden": b"h",
        },
        "",
    )


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("a.b.c", ("a", "b.c"), ("a.b", "c")),
        ("x.d/a.b", ("x.d/a", "b"), ("x.d/a", "b")),
        ("x.d/a", None, None),
        (".a.b", None, None),
        ("x/.a.b", ("x/", "a.b"), ("x/.a", "b")),
        ("a.", ("a", ""), ("a", "")),
    ],
)
def test_rules(name: str, first: tuple[str, str] | None, last: tuple[str, str] | None) -> None:
    assert (split_name(name), split_name(name, LAST_DOT)) == (first, last)


NAMES = ["a.wav", "./b.Seg.PNG", "x.d/c.txt", "d.", "e..f", "/data/g.JSON", "h\nd/i.x", "x/y.É", "i/K.\u212a"]
NO_SAMPLES = ["README", "x.d/LICENSE", "._a.wav", "./._a.wav", ".DS_Store", "..j", "__info__", "__k__/l.txt", "./.m/n"]
IN_DIRECTORIES = ["x/._a.wav", "x/.DS_Store", "__MACOSX/._a.wav", "__meta__.json", "../o.p", "q/."]


@pytest.mark.parametrize("name", NAMES + NO_SAMPLES + IN_DIRECTORIES)
def test_samples_are_those_of_webdataset(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "x.tar", [member(name, b"it")])
    with open(path, "rb") as stream:
        found = list(group_by_keys(tar_file_expander([{"url": name, "stream": stream}])))
    theirs = [(each["__key__"], {name: each[name] for name in each if not name.startswith("__")}) for each in found]
    assert (theirs == []) == (name in NO_SAMPLES)
    samples = touchfs.open(path)
    assert [(sample.key, dict(sample)) for sample in samples] == theirs
    assert [(make().key, dict(make())) for _, make in ShardStream(str(path), "x").samples(())] == theirs
    assert list(shown(path)[0].values()) == [b"it"]


def test_names_keep_their_case_and_keys_of_samples_do_not(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [member("A.JPG", b"1"), member("A.Txt", b"2"), member("A.jpg", b"3")])
    samples = touchfs.open(path)
    assert [(sample.key, sorted(sample), sample.text) for sample in samples] == [
        ("A", ["jpg", "txt"], "2"),
        ("A", ["jpg"], None),
    ]
    assert samples.read("jpg", [1, 0] * 10) == [b"3", b"1"] * 10
    assert [sample.path("jpg") for sample in samples] == ["shards/x/A.JPG", "shards/x/A~2.jpg"]
    assert len(samples.where('size.jpg == 1 and text == "2"')) == 1


@pytest.mark.parametrize(
    ("names", "is_refused"),
    [
        (["README", "a.txt", "b.txt"], True),
        (["a.txt", "b.txt"], False),
        (["._a.txt", "a.jpg", "a.JPG", "b.txt"], True),  # as many samples as before
        (["x/.a", "x/.b", "b.txt"], True),
    ],
)
def test_states_of_other_samples_are_refused(tmp_path: Path, names: list[str], is_refused: bool) -> None:
    """As earlier versions wrote them: the fingerprint had no `regrouped`, and the cursor of a stream was an ordinal."""
    path = write(tmp_path / "x.tar", [member(name, name.encode()) for name in names])
    samples = DatasetSamples(open_dataset(str(path)))
    old = ["shards", [["x", len(samples), [["x.tar", path.stat().st_size]]]]]
    assert (samples.fingerprint != hex_digest(json.dumps(old).encode())) == is_refused
    stream = ShardStream(str(path), "x")
    (cursor, _), *rest = stream.samples(())
    assert [make().key for _, make in stream.samples(cursor)] == [make().key for _, make in rest]
    if is_refused:
        with pytest.raises(
            FormatError, match=r"x\.tar: the state is of an earlier touchfs, which counted other samples"
        ):
            next(stream.samples([1]))
    else:
        assert cursor == [1]


@pytest.mark.parametrize("form", FORMATS)
def test_components_that_mean_nothing_are_not_shown(tmp_path: Path, form: int) -> None:
    """As `tar -C dir -cf x.tar .` names members, and other writers do; keys stay what they are."""
    members = {
        "./a.wav": "a.wav",
        "./b/./c.txt": "b/c.txt",
        "/data/d.wav": "data/d.wav",
        "e//f.wav": "e/f.wav",
        "../g.wav": "%2E%2E/g.wav",
        "./.hidden": ".hidden",
        "./x.": "x.",
        "y/.": "y/%2F.",
        "y/.z": "y/%2F.z",
        "/.": "%2E.",
    }
    path = write(tmp_path / "x.tar", [member(name, name.encode()) for name in members], form)
    found, report = shown(path)
    assert report == ""
    assert found == {name: each.encode() for each, name in members.items()}
    keys = [sample.key for sample in open_shard(str(path), Options())]
    assert keys == ["./a", "./b/./c", "/data/d", "e//f", "../g", "./x", "y/", "/"]


def test_tars_of_dot_show_no_dot(tmp_path: Path) -> None:
    """By the real tar; what it makes of a whole directory is that directory."""
    (tmp_path / "data" / "sub").mkdir(parents=True)
    for name in ("1.wav", "1.txt", "sub/2.wav", "none", "dot.", ".h"):
        (tmp_path / "data" / name).write_text(name)
    subprocess.run(["tar", "-C", tmp_path / "data", "-cf", tmp_path / "x.tar", "."], check=True)
    assert shown(tmp_path / "x.tar") == (
        {name: name.encode() for name in ("1.wav", "1.txt", "sub/2.wav", "none", "dot.", ".h")},
        "",
    )


def test_of_names_shown_alike_the_second_has_a_number(tmp_path: Path) -> None:
    names = ["a.wav", "./a.wav", "a.txt", "./a.txt", "./b", "b", "/b."]
    path = write(tmp_path / "x.tar", [member(name, name.encode()) for name in names])
    assert shown(path)[0] == {
        "a.wav": b"a.wav",
        "a.txt": b"a.txt",
        "a~2.wav": b"./a.wav",
        "a~2.txt": b"./a.txt",
        "b.": b"/b.",
        "b~2": b"./b",
        "b~3": b"b",
    }


def test_what_comes_after_the_end_mark_does_not_hide_it(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [member("a.txt", b"a")])
    with open(path, "ab") as file:
        file.write(b"no tar" * 200)
    assert "1200 bytes after the end of the archive are not a tar" in shown(path)[1]
    assert "no end mark" not in shown(path)[1]
    os.truncate(path, 1024)
    assert "no end mark" in shown(path)[1]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tree")
    (place / "d").mkdir()
    for number in range(3):
        (place / "d" / f"{number}.txt").write_bytes(b"%d" % number * 9000)
    return place


@pytest.mark.parametrize("form", ["gnu", "posix"])
@pytest.mark.parametrize("option", ["--listed-incremental={}/list", "--label=a label"])
def test_archives_of_gnu_tar_are_read_as_it_reads_them(tree: Path, tmp_path: Path, form: str, option: str) -> None:
    path = tmp_path / "x.tar"
    subprocess.run(["tar", f"--format={form}", option.format(tmp_path), "-C", tree, "-cf", path, "d"], check=True)
    assert shown(path) == ({f"d/{number}.txt": b"%d" % number * 9000 for number in range(3)}, "")


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_volume_says_which_file_is_in_another(tree: Path, tmp_path: Path, form: str) -> None:
    volumes = [tmp_path / f"{number}.tar" for number in range(2)]
    options = [f"--file={path}" for path in volumes]
    subprocess.run(
        ["tar", f"--format={form}", "-M", "-L20", "-C", tree, "-c", *options, "--sort=name", "d"], check=True
    )
    (first, cut), (second, rest) = map(shown, volumes)
    split = "1" if form == "posix" else "2"
    assert f"d/{split}.txt' should have 9000 bytes and is cut short" in cut
    assert "or goes on in another volume of `tar -M`" in cut
    assert f"'d/{split}.txt' goes on from another volume of `tar -M`: not shown" in rest
    assert sorted([*first, *second]) == sorted({f"d/{number}.txt" for number in range(3)} - {f"d/{split}.txt"})


def sound(form: str, seconds: float, rate: int = 8000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(int(seconds * rate), np.int16), rate, format=form)
    return file.getvalue()


def test_recordings_say_how_long_they_are(tmp_path: Path) -> None:
    members = [
        member("a.json", b"{}"),
        member("a.wav", sound("WAV", 1.5)),
        member("a.flac", sound("FLAC", 7)),
        member("b.FLAC", sound("FLAC", 2.25, 44100)),
        member("c.mp3", b"ID3"),
        member("d.wav", b"RIFF, but damaged" + bytes(100)),
        member("e.wav"),
        member("f.wav", type=tarfile.SYMTYPE, linkname="a.wav"),
    ]
    path = write(tmp_path / "x.tar", members)
    found = {sample.key: sample.recording for sample in open_shard(str(path), Options())}
    unmeasured = {key for key, each in found.items() if isinstance(each, UnmeasuredRecording)}
    lengths = {key: (each.rate, each.length) for key, each in found.items() if isinstance(each, StoredRecording)}
    assert unmeasured == {"c", "d", "e"}
    assert lengths == {"a": (8000, 12000), "b": (44100, 99225), "f": (8000, 12000)}
    facts = make_catalog(str(path), str(tmp_path / "x.arrow"))
    assert (facts.timed, facts.seconds, facts.unmeasured) == (3, 1.5 + 2.25 + 1.5, 3)


def test_that_costs_no_read_where_the_header_is(tmp_path: Path) -> None:
    """As many reads as of members that nobody listens to, of the same sizes."""
    reads = []
    recordings = [sound("WAV", 0.1 + i / 20) for i in range(30)] + [sound("FLAC", 3)] * 5
    for extension in ("wav", "bin"):
        members = [
            each
            for i, data in enumerate(recordings)
            for each in (member(f"{i}.{extension}", data), member(f"{i}.json", b"{}" * 99))
        ]
        data = write(tmp_path / "x.tar", members).read_bytes()
        count = 0

        def read(offset: int, length: int, data: bytes = data) -> bytes:
            nonlocal count
            count += 1
            return data[offset : offset + length]

        ahead = ReadAhead(read, len(data))
        found = [measure(each, ahead) for each in scan(ahead) if each.name.endswith(SUFFIXES)]
        assert all(found)
        reads.append(count)
    assert reads[0] == reads[1]


def test_extensions_too_long_for_a_name(tmp_path: Path) -> None:
    names = ["a." + "e" * 250, "a." + "e" * 300, "b." + "é" * 200, "c." + "~" * 254]
    path = write(tmp_path / "x.tar", [member(name, name.encode()) for name in names])
    found, report = shown(path)
    assert report == ""
    assert sorted(found.values()) == sorted(name.encode() for name in names)
    assert all(len(os.fsencode(name)) <= 255 for name in found)


components = st.sampled_from(["a", "b", "A", "a.wav", "a.json", "x.tar.gz", "语料", "é", "n" * 120]) | st.text(
    "ab.~%é/", min_size=1, max_size=5
)
names = (
    st.lists(components, min_size=1, max_size=3)
    .map("/".join)
    .map(lambda name: name.rstrip("/") or "a")
    .filter(lambda name: ".." not in name.split("/"))
)


@given(
    st.lists(st.tuples(names, st.binary(max_size=1200)), max_size=12), st.sampled_from(FORMATS), st.sampled_from([0, 1])
)
@example([("a.wav", b"1"), ("a.wav", b"2"), ("a.wav/b", b"3")], tarfile.PAX_FORMAT, 0)
@example([("a.wav", b""), ("a.json", b"{")], tarfile.PAX_FORMAT, 0)
@example([("a", b""), ("a/..a", b"")], tarfile.USTAR_FORMAT, 1)
def test_every_member_is_shown_once(members: list[tuple[str, bytes]], form: int, rule: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        if form == tarfile.USTAR_FORMAT:
            members = [(name, data) for name, data in members if len(name.encode()) <= 100]
        path = write(Path(place) / "x.tar", [member(name, data) for name, data in members], form)
        found, report = shown(path, Options(key_rule=("first-dot", LAST_DOT)[rule]))
        # Random bytes beside a .wav are no JSON.
        assert not report
        assert sorted(found.values()) == sorted(data for _, data in members)
        of_name: dict[str, list[bytes]] = {}
        dotted = {plain_path(name) for name, _ in members if "." in name.split("/")}
        for name, data in members:
            of_name.setdefault(plain_path(name), []).append(data)
        directories = {name[:i] for name in of_name for i in range(len(name)) if name[i] == "/"}
        for name, data in of_name.items():
            if len(data) == 1 and name not in {".", *directories, *dotted} and not set("%~") & set(name):
                is_plain = split_name(name, ("first-dot", LAST_DOT)[rule]) == split_name(name)
                if is_plain and "/." not in name and sum(n.startswith(name.split(".")[0]) for n in of_name) == 1:
                    assert found.get(name) == data[0]


def test_links_and_sparse_files(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.tar",
        [
            member("data/a.wav", b"sound"),
            member("hard.wav", type=tarfile.LNKTYPE, linkname="data/a.wav"),
            member("data/soft.wav", type=tarfile.SYMTYPE, linkname="../hard.wav"),
            member("out.wav", type=tarfile.SYMTYPE, linkname="../../etc/passwd"),
            member("abs.wav", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
            member("loop.wav", type=tarfile.SYMTYPE, linkname="loop.wav"),
            member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        ],
    )
    found, report = shown(path)
    assert found == {"data/a.wav": b"sound", "hard.wav": b"sound", "data/soft.wav": b"sound"}
    assert report.count("which is not a file of the archive") == 3 and "'null' is a device" in report
    assert all(f"(at byte {offset})" in report for offset in (2048, 2560, 3072))

    os.truncate(tmp_path / "x.tar", 0)
    holes = tmp_path / "holes.bin"
    with open(holes, "wb") as file:
        for offset in (5000, 200_000):
            file.seek(offset)
            file.write(b"x" * 700)
        file.truncate(300_000)
    status = os.system(f"tar -C {tmp_path} --sparse -cf {path} holes.bin")
    assert status == 0 and path.stat().st_size < 100_000
    assert shown(path) == ({"holes.bin": holes.read_bytes()}, "")


def test_damage_says_where_and_what_comes_before_is_served(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [member(f"{i}.txt", b"%d" % i) for i in range(6)])
    data = bytearray(path.read_bytes())
    data[4 * 1024 + 150] ^= 0xFF
    path.write_bytes(data)
    found, report = shown(path)
    assert found == {f"{i}.txt": b"%d" % i for i in range(4)}
    assert "(at byte 4096)" in report
    path.write_bytes(data[: 3 * 1024 + 512])
    found, report = shown(path)
    assert found == {f"{i}.txt": b"%d" % i for i in range(3)}
    assert "(at byte 3072)" in report


def test_archives_strung_together_and_what_follows_them(tmp_path: Path) -> None:
    first = write(tmp_path / "1.tar", [member("a.txt", b"1")]).read_bytes()
    second = write(tmp_path / "2.tar", [member("b.txt", b"2"), member("a.txt", b"3")]).read_bytes()
    (tmp_path / "x.tar").write_bytes(first + second + b"garbage" * 200)
    found, report = shown(tmp_path / "x.tar")
    assert found == {"a.txt": b"1", "b.txt": b"2", "a~2.txt": b"3"}
    assert "1400 bytes after the end of the archive are not a tar" in report


def test_an_archive_without_an_end_and_skipped_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [member("a.txt", b"1"), member("b.txt", b"2")])
    path.write_bytes(path.read_bytes()[:1024])
    found, report = shown(path)
    assert found == {"a.txt": b"1"} and "no end mark: it may have been cut (at byte 1024)" in report
    (tmp_path / "catalog.arrow").unlink()
    (tmp_path / "skipped.jsonl").write_text('{"line": 1}\n')
    assert find_shards(str(tmp_path)) == [str(path)]


def test_a_sample_has_its_text_from_its_own_member_only(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", [member("a.json", json.dumps({"txt": "x"}).encode()), member("a.txt", b"own")])
    assert shown(path)[0] == {"a.json": b'{"txt": "x"}', "a.txt": b"own"}
