import bz2
import gc
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import lilcom
import numpy as np
import pytest
import soundfile
import zstandard
from conformance import Expected, check_shard
from shown import files

from touchfs.catalog.catalog import Catalog
from touchfs.core.errors import FormatError, NotFoundError, SourceError
from touchfs.core.location import Location
from touchfs.indexing.catalogs import make_catalog
from touchfs.limits import Limits
from touchfs.media import lilcom as own_lilcom
from touchfs.registry.find import find_shards
from touchfs.registry.open import fingerprints, open_shard, shard_at, shard_name
from touchfs.shard.options import Decompress, Options
from touchfs.shard.sample import StoredSample

RATE = 8000
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".jsonl": bytes,
    ".jsonl.gz": gzip.compress,
    ".jsonl.xz": lzma.compress,
    ".jsonl.bz2": bz2.compress,
    ".jsonl.zst": lambda data: bytes(zstandard.compress(data)),
}


def cut(key: Any, **more: Any) -> dict[str, Any]:
    supervision = {"id": f"s-{key}", "start": 0.25, "duration": 0.5, "text": f"text of {key}"}
    return {"id": key, "start": 0, "duration": 1.0, "supervisions": [supervision], "type": "MonoCut"} | more


def line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def write_lines(path: Path, *values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(value if isinstance(value, bytes) else line(value) for value in values))
    return path


def write_tar(path: Path, members: Iterable[tuple[str, bytes | None]]) -> Path:
    """None is a directory."""
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = (tarfile.DIRTYPE, 0) if data is None else (tarfile.REGTYPE, len(data))
            tar.addfile(info, io.BytesIO(data or b""))
    return path


def pair(key: str, extension: str, data: bytes, **manifest: Any) -> list[tuple[str, bytes | None]]:
    return [(f"{key}.{extension}", data), (f"{key}.json", line(manifest))]


def missing(key: str) -> list[tuple[str, bytes | None]]:
    return [(f"{key}.nodata", b""), (f"{key}.nometa", b"")]


def wav(seed: int, samples: int = RATE, channels: int = 1, subtype: str = "PCM_16") -> bytes:
    made = io.BytesIO()
    audio = np.random.default_rng(seed).uniform(-0.9, 0.9, (samples, channels))
    soundfile.write(made, audio, RATE, format="WAV", subtype=subtype)
    return made.getvalue()


def told(samples: int = RATE, channels: int = 1) -> dict[str, Any]:
    return {"id": "r", "sampling_rate": RATE, "num_samples": samples, "channel_ids": list(range(channels))}


def npy(*values: int) -> bytes:
    made = io.BytesIO()
    np.save(made, np.array(values))
    return made.getvalue()


KEYS = ["a", "b/c.d", "目录/录音", "x" * 150, "e.", "a"]


def write_shar(directory: Path, number: str = ".000000", keys: list[str] = KEYS) -> str:
    path = write_lines(directory / f"cuts{number}.jsonl", *map(cut, keys))
    recordings = [each for i, key in enumerate(keys) for each in pair(key, "wav", wav(i), **told())]
    arrays = [each for i, key in enumerate(keys) for each in (pair(key, "npy", npy(i)) if i % 2 else missing(key))]
    write_tar(directory / f"recording{number}.tar", recordings)
    write_tar(directory / f"embedding{number}.tar", arrays)
    values = [{"cut_id": key, "lang": f"l{i}"} if i % 3 else {"cut_id": key} for i, key in enumerate(keys)]
    write_lines(directory / f"lang{number}.jsonl", *values)
    return str(path)


def shown(path: str | Path, view: str = "shards") -> dict[str, bytes]:
    """The files of a shard that is in order."""
    found, report = catalogued(path, view)
    assert not report
    return found


def catalogued(path: str | Path, view: str = "shards") -> tuple[dict[str, bytes], str]:
    """The files of a shard, and what is reported."""
    catalog = f"{path}.idx.catalog"
    facts = make_catalog(str(path), catalog)
    try:
        found = files(Catalog(catalog), str(path), view)
    finally:
        os.unlink(catalog)
    found.pop("ERROR.txt", None)
    return found, facts.report


def samples(path: str | Path) -> list[StoredSample]:
    return list(open_shard(str(path)))


def test_the_conformance_of_shards(tmp_path: Path) -> None:
    path = write_shar(tmp_path)
    expected = []
    for i, key in enumerate(KEYS):
        values = {"cuts": line(cut(key)), "recording": wav(i)}
        values |= {"embedding": npy(i)} if i % 2 else {}
        values |= {"lang": b"l%d" % i} if i % 3 else {}
        expected.append(Expected(key, values))
    check_shard(lambda: open_shard(path), expected)
    shard = open_shard(path)
    assert not shard.problems
    assert shard.remarks == ["cuts.000000.jsonl: cut 5 has the id of an earlier one, 'a': paired by order"]
    assert shard.size == sum((tmp_path / name).stat().st_size for name in os.listdir(tmp_path))
    assert shard_at(path).container.name == "Lhotse Shar"
    assert shard_name(Location.of(path), shard_at(path).container) == "cuts.000000"


def test_files_and_segments(tmp_path: Path) -> None:
    path = write_shar(tmp_path, keys=KEYS[:4])
    expected = {}
    for i, key in enumerate(KEYS[:4]):
        expected |= {f"{key}.json": line(cut(key)), f"{key}.wav": wav(i), f"{key}.txt": f"text of {key}".encode()}
        expected |= {f"{key}.embedding.npy": npy(i)} if i % 2 else {}
        expected |= {f"{key}.lang.txt": b"l%d" % i} if i % 3 else {}
    assert shown(path) == expected
    segments = shown(path, "segments")
    for i, key in enumerate(KEYS[:4]):
        recording, _ = soundfile.read(io.BytesIO(wav(i)), dtype="int16")
        piece, rate = soundfile.read(io.BytesIO(segments[f"{key}/0000.wav"]), dtype="int16")
        assert rate == RATE
        assert np.array_equal(piece, recording[RATE // 4 : RATE * 3 // 4])
        assert segments[f"{key}/0000.txt"].decode() == f"text of {key}"
        assert json.loads(segments[f"{key}/0000.json"])["id"] == f"s-{key}"


# Which files are a shard


def test_shards_are_paired_by_number(tmp_path: Path) -> None:
    for number in range(3):
        write_shar(tmp_path, f".{number:06d}", [f"{number}"])
    (tmp_path / "recording.000000.tar").unlink()
    (tmp_path / "lang.000001.jsonl").unlink()
    assert find_shards(str(tmp_path)) == [str(tmp_path / f"cuts.00000{number}.jsonl") for number in range(3)]
    extensions = [["json", "txt"], ["json", "txt", "wav"], ["json", "txt", "wav"]]
    missing = ["recording is missing here", "lang is missing here", ""]
    for number, (expected, told) in enumerate(zip(extensions, missing, strict=True)):
        found, report = catalogued(tmp_path / f"cuts.00000{number}.jsonl")
        found.pop("ERROR.txt", None)
        assert sorted(name.split(".", 1)[1] for name in found) == expected
        assert told in report and bool(report) == bool(told)


@pytest.mark.parametrize("number", ["", ".000007", ".train.000001", ".目录", ".tar"])
def test_any_text_is_a_number(tmp_path: Path, number: str) -> None:
    path = write_shar(tmp_path, number, ["x", "y"])
    write_shar(tmp_path, ".000123", ["z"])
    assert path in find_shards(str(tmp_path))
    assert sorted(shown(path)) == [
        "x.json",
        "x.txt",
        "x.wav",
        *(f"y.{e}" for e in ("embedding.npy", "json", "lang.txt")),
        "y.txt",
        "y.wav",
    ]


def test_shar_directories_one_level_down(tmp_path: Path) -> None:
    expected = [write_shar(tmp_path / split, f".{i:06d}", ["x"]) for split in ("dev", "train") for i in (0, 1)]
    assert find_shards(str(tmp_path)) == expected
    assert find_shards(expected[1]) == [expected[1]]
    tar = str(tmp_path / "dev/recording.000000.tar")
    assert find_shards(tar) == [tar], "a tar is a tar, where it is asked for"


def test_files_that_belong_to_no_shard_are_told_by_the_first_one(tmp_path: Path) -> None:
    first, second = (write_shar(tmp_path, f".{number:06d}", ["x", "y"]) for number in (3, 4))
    strays = ["README.md", "notes", "recording.000009.tar", "lang.jsonl", "recording.tar", "cuts.000003.tar"]
    for name in strays:
        (tmp_path / name).write_bytes(b"?")
    for name in ("recording.000003.tar.idx", "x.idxpack", ".hidden", ".touchfs-index/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"?")
    assert find_shards(str(tmp_path)) == [first, second]
    expected = shown(second)
    found, report = catalogued(first)
    assert found.keys() == expected.keys()
    problems = [each for each in report.splitlines() if each.endswith("not shown")]
    assert sorted(each.split()[0] for each in problems) == sorted(strays)
    assert "2 samples are served" in report
    (tmp_path / "README.md").unlink()
    assert "README.md" not in catalogued(first)[1]


MANIFESTS: dict[str, list[dict[str, Any]]] = {
    "cuts": [cut("a"), cut("b")],
    "recordings": [{"id": "r-a", "sources": []}, {"id": "r-b", "sources": []}, {"id": "r-c", "sources": []}],
    "supervisions": [{"id": "s-a", "recording_id": "r-a", "text": "x"}],
}


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.xz", ".jsonl.bz2", ".jsonl.zst"])
def test_lhotses_ordinary_manifests_are_three_shards(tmp_path: Path, suffix: str) -> None:
    """In their directory and named alone, whatever else is beside them that is no tar."""
    compress = COMPRESS[suffix]
    for name, rows in MANIFESTS.items():
        (tmp_path / f"{name}{suffix}").write_bytes(compress(b"".join(map(line, rows))))
    (tmp_path / "README.md").write_text("?")
    paths = [str(tmp_path / f"{name}{suffix}") for name in MANIFESTS]
    assert find_shards(str(tmp_path)) == paths
    for path, (name, rows) in zip(paths, MANIFESTS.items(), strict=True):
        assert find_shards(path) == [path]
        assert shard_at(path).container.name.endswith("JSON lines")
        assert shard_name(Location.of(path), shard_at(path).container) == name
        assert shown(path) == {f"{row['id']}.json": line(row) for row in rows}
    write_shar(tmp_path, ".000000", ["x"])
    assert find_shards(str(tmp_path)) == sorted([*paths, str(tmp_path / "cuts.000000.jsonl")]), "each is what it was"
    assert shard_at(paths[0]).container.name.endswith("JSON lines")


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_beside_cuts_without_a_number_lines_are_a_field_by_their_cut_id(tmp_path: Path, suffix: str) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"), cut("b"))
    rows = [{"cut_id": "a", "lang": "la"}, {"cut_id": "b", "lang": "lb"}]
    lines = {
        "lang": b"\n \r\n" + b"".join(map(line, rows)),
        "recordings": line({"id": "r"}),
        "empty": b"",
        "bad": b"{\n",
    }
    lines["long"] = b'{"cut_id": "a", "long": "' + b"x" * (1 << 20) + b'"}\n'
    for name, data in lines.items():
        (tmp_path / f"{name}{suffix}").write_bytes(COMPRESS[suffix](data))
    others = [str(tmp_path / f"{name}{suffix}") for name in ("bad", "empty", "recordings")]
    assert find_shards(str(tmp_path)) == sorted([str(path), *others])
    assert shard_at(str(path)).container.name == "Lhotse Shar"
    assert fingerprints(str(path)).keys() == {"cuts.jsonl", f"lang{suffix}", f"long{suffix}"}
    found, report = catalogued(path)
    assert (found["a.lang.txt"], found["b.lang.txt"]) == (b"la", b"lb")
    assert len(found["a.long.txt"]) == 1 << 20
    assert all(name not in report for name in ("recordings", "empty", "bad"))


def test_a_tar_makes_cuts_without_a_number_a_shar(tmp_path: Path) -> None:
    path = str(write_lines(tmp_path / "cuts.jsonl", cut("a")))
    assert shard_at(path).container.name == "JSON lines"
    write_lines(tmp_path / "recordings.jsonl", {"id": "r"})
    write_tar(tmp_path / "recording.tar", pair("a", "wav", wav(0), **told()))
    for source in (str(tmp_path), path):
        assert find_shards(source)[0] == path
        assert shard_at(path).container.name == "Lhotse Shar"
        assert shown(path)["a.wav"] == wav(0)
    (tmp_path / "recording.tar").unlink()
    (tmp_path / "cuts.tar").write_bytes(b"")
    assert shard_at(path).container.name == "JSON lines", "cuts are no field of theirs"


def test_what_is_left_over_of_compressing(tmp_path: Path) -> None:
    path = write_shar(tmp_path, keys=["x", "y"])
    for name in ("cuts.000000.jsonl.gz", "lang.000000.jsonl.gz"):
        (tmp_path / name).write_bytes(b"\x1f\x8b")
    assert find_shards(str(tmp_path)) == [path]
    found, report = catalogued(path)
    assert "y.lang.txt" in found
    for told in (
        "cuts.000000.jsonl.gz is not needed beside cuts.000000.jsonl: not shown",
        "lang.000000.jsonl.gz is not needed beside lang.000000.jsonl: not shown",
    ):
        assert told in report.splitlines()


def test_compressed_files_are_read_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    (tmp_path / "shar").mkdir()
    path = Path(write_shar(tmp_path / "shar", keys=["x", "语料"]))
    expected, segmented = shown(path), shown(path, "segments")
    for name in sorted(os.listdir(path.parent)):
        plain = path.parent / name
        (path.parent / f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    compressed = path.with_name(path.name + ".gz")
    assert find_shards(str(path.parent)) == find_shards(str(compressed)) == [str(compressed)]
    assert (shown(compressed), shown(compressed, "segments")) == (expected, segmented)
    with pytest.raises(SourceError, match="not decompressed"):
        shutil.rmtree(tmp_path / "scratch")
        open_shard(str(compressed), Options(decompress=Decompress.NEVER))
    compressed.write_bytes(compressed.read_bytes()[:-9])
    found, report = catalogued(compressed)
    assert not found and "cannot be served" in report


def test_a_field_has_one_file(tmp_path: Path) -> None:
    path = write_shar(tmp_path, keys=["x"])
    write_lines(tmp_path / "embedding.000000.jsonl", {"cut_id": "x", "embedding": 1})
    write_lines(tmp_path / "supervisions.000000.jsonl", {"id": "s-x"})
    found, report = catalogued(path)
    assert "embedding.000000.tar is a second file of 'embedding': not shown" in report
    assert "supervisions.000000.jsonl is not a field: none of its lines has a cut_id" in report
    assert sorted(found) == ["x.embedding.json", "x.json", "x.txt", "x.wav"]


def test_a_shards_files(tmp_path: Path) -> None:
    """Also in a directory that is as it was for long, of which a listing is kept."""
    path = write_shar(tmp_path)
    mine = {f"{name}.000000.{suffix}" for name, suffix in [("cuts", "jsonl"), ("lang", "jsonl")]}
    mine |= {f"{name}.000000.tar" for name in ("recording", "embedding")}
    for _ in range(2):
        os.utime(tmp_path, (1e9, 1e9))
        assert fingerprints(path).keys() == mine
        assert fingerprints(path)["recording.000000.tar"].size == (tmp_path / "recording.000000.tar").stat().st_size
    write_lines(tmp_path / "new.000000.jsonl", {"cut_id": "a"})
    assert fingerprints(path).keys() == mine | {"new.000000.jsonl"}
    os.unlink(path)
    for gone in (path, str(tmp_path / "cuts.000009.jsonl"), str(tmp_path / "nowhere/cuts.jsonl")):
        with pytest.raises(NotFoundError, match="no such shard"):
            fingerprints(gone)


def test_a_shard_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shar(tmp_path, keys=["x"])
    monkeypatch.chdir(tmp_path)
    assert [sample.key for sample in open_shard("cuts.000000.jsonl")] == ["x"]


# Which value is whose


def scrambled(
    tmp_path: Path, members: Iterable[tuple[str, bytes | None]], keys: list[str]
) -> tuple[list[StoredSample], Any]:
    path = write_lines(tmp_path / "cuts.jsonl", *map(cut, keys))
    write_tar(tmp_path / "recording.tar", members)
    shard = open_shard(str(path))
    return list(shard), shard.problems


def stored(path: Path, sample: StoredSample, field: str) -> bytes:
    found = sample.fields[field]
    data = (path / found.source).read_bytes()
    return data[found.offset : found.offset + found.size]


def test_further_members_are_in_nobodys_way(tmp_path: Path) -> None:
    keys = ["d/a", "d/b", "c"]
    members: list[tuple[str, bytes | None]] = [("d", None)]
    for i, key in enumerate(keys):
        value, manifest = pair(key, "wav", wav(i), **told())
        members += [value, ("d/e", None), manifest]
    found, problems = scrambled(tmp_path, members, keys)
    assert not problems
    for i, sample in enumerate(found):
        assert not sample.problem
        assert stored(tmp_path, sample, "recording") == wav(i)


def test_values_in_another_order_are_found_by_their_id(tmp_path: Path) -> None:
    keys = [f"k{i}" for i in range(6)]
    order = [3, 0, 5, 2]
    members = [each for i in order for each in pair(keys[i], "wav", wav(i), **told())]
    found, problems = scrambled(tmp_path, members, keys)
    assert not problems
    for i, sample in enumerate(found):
        if i in order:
            assert not sample.problem
            assert stored(tmp_path, sample, "recording") == wav(i)
            assert sample.recording is not None
        else:
            assert sample.problem == "recording.tar has nothing for this cut"
            assert sample.recording is None
            assert sample.fields.keys() == {"cuts"}


@pytest.mark.parametrize(
    ("keys", "values", "found"),
    [
        ("aba", "aba", [0, 1, 2]),
        ("xaa", "aa", [None, 0, 1]),
        ("aabb", "bbaa", [2, 3, 0, 1]),
        ("aab", "xaab", [1, 2, 3]),
        ("aba", "ab", [0, 1, None]),
        ("xaab", "ab", [None, None, None, 1]),
        ("aab", "b", [None, None, 0]),
        ("aba", "baab", [1, None, 2]),
        ("xa", "aa", [None, None]),
    ],
)
def test_cuts_of_one_id_have_their_values_by_order(
    tmp_path: Path, keys: str, values: str, found: list[int | None]
) -> None:
    """Never one that may be another cut's. They are the same in whatever order the cuts are asked for."""
    path = write_lines(tmp_path / "cuts.jsonl", *map(cut, keys))
    write_tar(tmp_path / "recording.tar", [m for i, k in enumerate(values) for m in pair(k, "wav", wav(i), **told())])
    write_lines(tmp_path / "n.jsonl", *({"cut_id": key, "n": i} for i, key in enumerate(values)))
    orders = [range(len(keys)), reversed(range(len(keys))), [len(keys) // 2, *range(len(keys))]]
    for order in map(list, orders):
        shard = open_shard(str(path))
        samples = {i: shard[i] for i in order}
        for i, position in enumerate(found):
            fields = {name: stored(tmp_path, samples[i], name) for name in samples[i].fields if name != "cuts"}
            assert fields == ({} if position is None else {"recording": wav(position), "n": b"%d" % position}), i
            assert bool(samples[i].problem) == (position is None)
        repeated = [i for i, key in enumerate(keys) if key in keys[:i]]
        assert [each.split()[2] for each in shard.remarks] == [str(i) for i in repeated]
        shard.close()
    report = catalogued(path)[1]
    assert all(f"cut {i} has the id of an earlier one, {keys[i]!r}: paired by order" in report for i in repeated)


def test_lines_in_another_order_are_found_by_their_id(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", *map(cut, ["a", "b", "c", 4]))
    rows = [{"cut_id": "b", "lang": "lb"}, {"cut_id": "a", "lang": "la"}, {"cut_id": 4, "lang": "l4"}]
    lines = [b"\n", line(rows[0]), b" \r\n", *map(line, rows[1:])]
    write_lines(tmp_path / "lang.jsonl", *lines, b"nonsense\n", {"lang": "?"})
    end = sum(map(len, lines))
    found, report = catalogued(path)
    assert {name: data for name, data in found.items() if "lang" in name} == {
        "a.lang.txt": b"la",
        "b.lang.txt": b"lb",
        "4.lang.txt": b"l4",
    }
    assert "sample 2 ('c'): lang.jsonl has nothing for this cut" in report
    assert f"lang.jsonl: the line at byte {end} is not JSON" in report
    assert f"lang.jsonl: the line at byte {end + 9} has no cut_id: not shown" in report
    assert "lang.jsonl has 5 values for 4 cuts: the others are not shown" in report


def test_members_without_their_other_half(tmp_path: Path) -> None:
    members = [
        *pair("a", "wav", wav(0), **told())[1:],
        *pair("b", "wav", wav(1), **told())[:1],
        *pair("c", "flac", b"fLaC?")[:1],
        ("d.nodata", b""),
        ("no-extension", b"?"),
    ]
    found, problems = scrambled(tmp_path, members, ["a", "b", "c", "d"])
    assert [each.split(" (")[0] for each in problems] == [
        "recording.tar: 'a.json' does not come after its value",
        "recording.tar: 'no-extension' is no value of a cut",
    ]
    assert [sample.problem for sample in found] == [
        "recording.tar has nothing for this cut",
        "",
        "c.flac has no .json after it in recording.tar",
        "",
    ]
    assert stored(tmp_path, found[1], "recording") == wav(1)
    assert found[1].recording is not None, "of PCM nothing needs to be told"
    assert stored(tmp_path, found[2], "recording") == b"fLaC?"
    assert found[3].fields.keys() == {"cuts"}


def test_links_and_devices_are_no_values(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"))
    with tarfile.open(tmp_path / "recording.tar", "w") as tar:
        info = tarfile.TarInfo("a.wav")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    shard = open_shard(str(path))
    assert shard.problems == ["recording.tar: 'a.wav' is no value of a cut (at byte 0): not shown"]
    assert [sample.problem for sample in shard] == ["recording.tar has nothing for this cut"]


def test_cuts_that_are_none(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbf" + line(cut("a")),
        b"\n",
        b"{nonsense\n",
        b"[1]\n",
        line({"duration": 1}),
        line(cut("b"))[:-1],
    ]
    path = write_lines(tmp_path / "cuts.jsonl", *lines)
    write_tar(tmp_path / "recording.tar", pair("a", "wav", wav(0)) + pair("b", "wav", wav(1)))
    found, report = catalogued(path)
    assert found == {
        "a.json": lines[0],
        "a.txt": b"text of a",
        "a.wav": wav(0),
        "00000001.json": lines[2],
        "00000002.json": lines[3],
        "00000003.json": lines[4],
        "b.json": lines[5],
        "b.txt": b"text of b",
        "b.wav": wav(1),
    }
    offset = len(lines[0]) + 1
    assert f"sample 1 ('00000001'): the line at byte {offset} is not JSON" in report
    assert f"sample 2 ('00000002'): the line at byte {offset + len(lines[2])} is not a JSON object" in report
    assert "sample 3 ('00000003'): a cut without an id" in report


# Damage


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.variant)])
def test_a_tar_that_is_cut_short_serves_what_is_there(tmp_path: Path, every: int) -> None:
    keys = [f"k{i}" for i in range(5)]
    path = write_lines(tmp_path / "cuts.jsonl", *map(cut, keys))
    whole = write_tar(
        tmp_path / "recording.tar", [m for i, k in enumerate(keys) for m in pair(k, "wav", wav(i), **told())]
    )
    data = whole.read_bytes()
    with tarfile.open(whole) as tar:
        members = {member.name: member for member in tar}
    for size in [512 * i + j for i in range(len(data) // 512) for j in (0, 100)][::every]:
        whole.write_bytes(data[:size])
        shard = open_shard(str(path))
        in_time = [i for i, key in enumerate(keys) if members[f"{key}.wav"].offset_data + len(wav(i)) <= size]
        for i, sample in enumerate(shard):
            assert ("recording" in sample.fields) == (i in in_time)
            assert bool(sample.problem) == (i not in in_time)
            if i in in_time:
                assert sample.recording is not None
                assert stored(tmp_path, sample, "recording") == wav(i)
        if shard.problems:
            assert "(at byte " in shard.problems[0]
            assert all("(at byte " in sample.problem for sample in shard if sample.problem)


def test_a_damaged_header(tmp_path: Path) -> None:
    keys = ["a", "b", "c", "d"]
    path = write_lines(tmp_path / "cuts.jsonl", *map(cut, keys))
    damaged = write_tar(tmp_path / "recording.tar", [m for i, k in enumerate(keys) for m in pair(k, "wav", wav(i))])
    with tarfile.open(damaged) as tar:
        offset = tar.getmember("c.wav").offset
    data = bytearray(damaged.read_bytes())
    data[offset + 3] ^= 1
    damaged.write_bytes(data)
    found, report = catalogued(path)
    assert {name for name in found if name.endswith("wav")} == {"a.wav", "b.wav"}
    assert f"(at byte {offset})" in report
    assert "sample 3 ('d'): recording.tar has nothing for this cut, or what it has is behind its damage" in report


def test_tars_that_were_strung_together(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", *map(cut, ["a", "b"]))
    parts = [write_tar(tmp_path / "part", pair(key, "wav", wav(i))).read_bytes() for i, key in enumerate("ab")]
    (tmp_path / "part").unlink()
    (tmp_path / "recording.tar").write_bytes(b"".join(parts))
    assert shown(path)["b.wav"] == wav(1)


def test_recordings_that_are_none(tmp_path: Path) -> None:
    """The bytes are shown all the same."""
    good = wav(0)
    members = [
        *pair("a", "wav", good[:100] + b"\0" * 100, **told()),
        *pair("b", "flac", b"fLaC", **told() | {"num_samples": "1"}),
        *pair("c", "flac", b"fLaC")[:1],
        ("c.json", b"{nonsense"),
        *pair("d", "flac", b"fLaC")[:1],
        ("d.json", b" " * (1 << 20) + b"{}"),
        *pair("e", "wav", b""),
        ("f.wav", good),
        ("f.json", b"[]"),
    ]
    found, problems = scrambled(tmp_path, members, list("abcdef"))
    assert not problems
    words = [
        "cut short after",
        "does not contain",
        "is not JSON",
        "a manifest of 1048578 bytes",
        "does not contain",
        "",
    ]
    for sample, expected in zip(found, words, strict=True):
        assert expected in sample.problem
        assert bool(expected) == bool(sample.problem)
        assert (sample.recording is None) == bool(expected)
        assert "recording" in sample.fields


# Values of all kinds


def test_values_in_lines(tmp_path: Path) -> None:
    values = {
        "plain": "你好",
        "empty": "",
        "escaped": 'a "b" \\ \n',
        "half": "\ud83d!",
        "number": 1.50,
        "none": None,
        "list": [1, {"a": "ü"}],
        "yes": True,
    }
    path = write_lines(tmp_path / "cuts.jsonl", *map(cut, values))
    rows = [line({"cut_id": key, "x": value}) if key != "half" else b"" for key, value in values.items()]
    rows[3] = b'{"cut_id": "half", "x": "\\ud83d!"}\n'
    rows[4] = b'{"cut_id": "number",  "x" : 1.50 }\n'
    write_lines(tmp_path / "x.jsonl", *rows)
    found = {name: data for name, data in shown(path).items() if ".x." in name}
    assert found == {
        "plain.x.txt": "你好".encode(),
        "empty.x.txt": b"",
        "escaped.x.txt": b'a "b" \\ \n',
        "half.x.txt": "\ufffd!".encode(),
        "number.x.json": b"1.50",
        "none.x.json": b"null",
        "list.x.json": '[1, {"a": "ü"}]'.encode(),
        "yes.x.json": b"true",
    }


def test_arrays_and_further_recordings_are_named_after_their_field(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"))
    write_tar(tmp_path / "features.tar", pair("a", "npy", npy(1)))
    write_tar(tmp_path / "target.tar", pair("a", "flac", b"fLaC", **told()))
    write_tar(tmp_path / "source.tar", pair("a", "original", wav(1), **told()))
    assert shown(path) == {
        "a.json": line(cut("a")),
        "a.txt": b"text of a",
        "a.features.npy": npy(1),
        "a.target.flac": b"fLaC",
        "a.source.wav": wav(1),
    }
    assert not any(name.endswith(".wav") for name in shown(path, "segments")), "the recording of a cut is called so"


def test_lilcom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", *map(cut, "abc"))
    matrices = [np.random.default_rng(i).normal(0, 3, (7 + i, 20)).astype("f4") for i in range(2)]
    compressed = [lilcom.compress(matrix) for matrix in [*matrices, matrices[0].ravel()]]
    # What Lhotse tells of the frames of a part of a recording is how many the whole has.
    manifest = {"num_frames": 999, "num_features": 20}
    members = [m for key, data in zip("abc", compressed, strict=True) for m in pair(key, "llc", data, **manifest)]
    write_tar(tmp_path / "features.tar", members)
    found = shown(path)
    for key, data, matrix in zip("abc", compressed, [*matrices, matrices[0].ravel()], strict=True):
        array = np.load(io.BytesIO(found[f"{key}.features.npy"]))
        assert array.dtype == np.float32
        assert np.array_equal(array, lilcom.decompress(data))
        assert np.allclose(array, matrix, atol=0.01)
    monkeypatch.setattr(own_lilcom, "is_installed", lambda: False)
    found = shown(path)
    assert [found[f"{key}.features.llc"] for key in "abc"] == compressed
    assert "pip install lilcom" in samples(path)[0].fields["features"].note


def test_lilcom_over_the_limit_is_shown_as_it_is(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"), cut("b"))
    compressed = [lilcom.compress(np.zeros((count, 20), "f4")) for count in (10, 11)]
    write_tar(
        tmp_path / "features.tar",
        [m for key, data in zip("ab", compressed, strict=True) for m in pair(key, "llc", data)],
    )
    limited = Options(limits=Limits(decoded=10 * 20 * 4))
    small, large = (sample.fields["features"] for sample in open_shard(str(path), limited))
    assert (str(small.form), small.extension) == ("lilcom/10/20", "features.npy")
    assert (str(large.form), large.extension) == ("bytes", "features.llc")
    assert "--max-decoded" in large.note


def test_long_lines_of_cuts_and_fields_are_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"), cut("b", custom={"x": "x" * 1000}), cut("c"))
    values = [{"cut_id": "a", "lang": "en"}, {"cut_id": "b", "lang": "fr"}, {"cut_id": "c", "lang": "x" * 1000}]
    write_lines(tmp_path / "lang.jsonl", *values)
    shard = open_shard(str(path), Options(limits=Limits(json=900)))
    a, b, c = shard
    assert (a.key, a.problem, set(a.fields)) == ("a", "", {"cuts", "lang"})
    assert (b.key, set(b.fields)) == ("00000001", {"cuts"})
    assert "over 900 bytes" in b.problem
    assert (c.key, set(c.fields)) == ("c", {"cuts"})
    assert "lang.jsonl has nothing for this cut" in c.problem
    (problem,) = shard.problems
    assert "lang.jsonl: the line at byte" in problem
    assert "over 900 bytes" in problem


def test_lilcom_that_is_none(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"))
    write_tar(tmp_path / "features.tar", pair("a", "llc", b"nonsense"))
    assert "lilcom cannot decompress it" in samples(path)[0].problem


@pytest.mark.parametrize(
    ("extension", "kind", "subtype", "channels", "form"),
    [
        ("wav", "WAV", "PCM_16", 1, f"wav/{RATE}"),
        ("wav", "WAV", "PCM_16", 2, f"wav/{RATE}/2"),
        ("original", "WAV", "PCM_16", 3, f"wav/{RATE}/3"),
        ("wav", "WAV", "PCM_24", 1, f"wav/{RATE}/1/s24"),
        ("wav", "WAV", "FLOAT", 2, f"wav/{RATE}/2/f32"),
        ("flac", "FLAC", None, 2, "bytes"),
        ("original", "FLAC", None, 1, "bytes"),
        ("original", "OGG", "OPUS", 1, "bytes"),
        ("mp3", "MP3", None, 1, "bytes"),
    ],
)
def test_recordings(tmp_path: Path, extension: str, kind: str, subtype: str | None, channels: int, form: str) -> None:
    made = io.BytesIO()
    audio = np.random.default_rng(0).uniform(-0.9, 0.9, (RATE, channels))
    soundfile.write(made, audio, RATE, format=kind, subtype=subtype)
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"))
    manifest = {} if form != "bytes" else told(channels=channels)
    write_tar(tmp_path / "recording.tar", pair("a", extension, made.getvalue(), **manifest))
    sample = samples(path)[0]
    assert sample.recording is not None
    assert str(sample.recording.field.form) == form
    assert (sample.recording.rate, sample.recording.channels, sample.recording.length) == (RATE, channels, RATE)
    shown_as = "opus" if subtype == "OPUS" else kind.lower()
    assert shown(path)[f"a.{shown_as}"] == made.getvalue()
    piece, _ = soundfile.read(io.BytesIO(shown(path, "segments")["a/0000.wav"]), always_2d=True)
    whole, _ = soundfile.read(io.BytesIO(made.getvalue()), always_2d=True)
    if kind == "MP3" or subtype == "OPUS":
        assert piece.shape == (RATE // 2, channels)
    else:
        assert np.array_equal(piece, whole[RATE // 4 : RATE * 3 // 4])


def test_a_cut_that_is_a_part_of_what_is_stored(tmp_path: Path) -> None:
    supervisions = [
        {"id": "s", "start": start, "duration": duration} for start, duration in [(0, 1), (-0.25, 0.5), (0.25, 0.5)]
    ]
    path = write_lines(tmp_path / "cuts.jsonl", cut("a", start=0.25, duration=0.5, supervisions=supervisions))
    write_tar(tmp_path / "recording.tar", pair("a", "wav", wav(0)))
    whole, _ = soundfile.read(io.BytesIO(wav(0)), dtype="int16")
    segments = shown(path, "segments")
    quarter = RATE // 4
    for number, (first, last) in enumerate([(1, 3), (1, 2), (2, 3)]):
        piece, _ = soundfile.read(io.BytesIO(segments[f"a/{number:04d}.wav"]), dtype="int16")
        assert np.array_equal(piece, whole[first * quarter : last * quarter])
        assert "cut's end" in json.loads(segments[f"a/{number:04d}.json"])["touchfs"]["problem"] or number == 1


def test_cuts_without_a_recording_have_the_texts_of_their_segments(tmp_path: Path) -> None:
    """Beside others that have one, and in a shard without recordings at all."""
    supervision = {"id": "s", "start": 0.5, "duration": 0.25, "text": "second", "speaker": "x", "custom": {"a": 1}}
    row = cut("b", supervisions=[{"id": "t", "start": 0, "duration": 0.5, "text": "first"}, supervision])
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"), row, cut("c", supervisions=[]))
    write_tar(tmp_path / "recording.tar", [*pair("a", "wav", wav(0), **told()), *missing("b"), *missing("c")])
    segments = shown(path, "segments")
    names = ["a/0000.json", "a/0000.txt", "a/0000.wav", "b/0000.json", "b/0000.txt", "b/0001.json", "b/0001.txt"]
    assert sorted(segments) == names
    assert (segments["b/0000.txt"], segments["b/0001.txt"]) == (b"first", b"second")
    made = {"key": "b", "segment": 1, "problem": "the cut has no recording"}
    assert json.loads(segments["b/0001.json"]) == supervision | {"touchfs": made}
    (tmp_path / "recording.tar").unlink()
    write_lines(tmp_path / "lang.jsonl", *({"cut_id": key, "lang": "x"} for key in "abc"))
    assert sorted(shown(path, "segments")) == [name for name in names if not name.endswith(".wav")]


def test_little_is_kept_of_a_cut(tmp_path: Path) -> None:
    """Not its JSON, of which there may be much."""
    count = 700
    supervisions = [{"id": f"s{i}", "start": i, "duration": 1, "text": "text " * 5} for i in range(20)]
    path = write_lines(tmp_path / "cuts.jsonl", *(cut(f"cut-{i:06d}", supervisions=supervisions) for i in range(count)))
    write_tar(tmp_path / "recording.tar", [m for i in range(count) for m in missing(f"cut-{i:06d}")])
    samples(path)  # for what is kept only once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        shard = open_shard(str(path))
        assert sum(1 for _ in shard) == count
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 200 * count
    finally:
        tracemalloc.stop()
    shard.close()


def test_fields_of_names_that_others_have(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "cuts.jsonl", cut("a"))
    for field in ("text", "json", "txt", "wav"):
        rows: Mapping[str, Any] = {"cut_id": "a", field: field}
        write_lines(tmp_path / f"{field}.jsonl", rows)
    assert sorted(shown(path)) == ["a.json", "a.json.txt", "a.text.txt", "a.txt", "a.txt.txt", "a.wav.txt"]


def test_a_shard_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_shard(str(tmp_path / "cuts.jsonl"))
    (tmp_path / "cuts.000000.jsonl.gz").write_bytes(b"")
    with pytest.raises(FormatError, match="is empty"):
        open_shard(str(tmp_path / "cuts.000000.jsonl.gz"))
