import io
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import check_reads
from hypothesis import given, settings
from hypothesis import strategies as st
from megatron import INT32, JPEG, packed, split, tokens, write_prefix
from shown import contents, files, rows
from touchnet import INT16, UINT8, UINT16, as_json, index_bytes, write_shard, write_speech
from wav_files import wav_of

from touchfs.catalog.catalog import KINDS_MAX, Catalog
from touchfs.catalog.table_builder import encode_key
from touchfs.core.errors import SourceError
from touchfs.indexing.catalogs import make_catalog
from touchfs.indexing.report import REPORTED_MAX
from touchfs.indexing.tables import sample_tables
from touchfs.shard.options import Options


class Made:
    """A shard's catalog, made and opened."""

    def __init__(self, shard: Path, sample_rate: int | None = None) -> None:
        self.shard = str(shard)
        path = os.path.join(self.shard, "catalog.arrow")
        self.facts = make_catalog(self.shard, path, Options(sample_rate))
        self.catalog = Catalog(path)
        assert self.catalog.facts == self.facts

    def files(self, view: str = "shards") -> dict[str, bytes]:
        return files(self.catalog, self.shard, view)

    @property
    def report(self) -> str:
        """What ERROR.txt says, surely the same as the facts do."""
        told = self.files()["ERROR.txt"].decode()
        assert told == self.facts.report
        return told


def wav(pcm: bytes, rate: int = 16000) -> bytes:
    return wav_of(pcm, rate)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def told(key: Any, **more: Any) -> dict[str, Any]:
    return {"key": key, "sample_rate": 16000} | more


def pcm(seed: int, count: int) -> bytes:
    return random.Random(seed).randbytes(2 * count)


# Whole shards against what they should show, file by file

TIMES = st.integers(-2000, 4000).map(lambda ms: ms / 1000) | st.just(-1)
SEGMENTS = st.lists(
    st.fixed_dictionaries({"start": TIMES, "end": TIMES}, optional={"txt": st.text(max_size=5)}), max_size=3
)
SAMPLES = st.lists(
    st.fixed_dictionaries(
        {
            "pcm": st.integers(0, 3000),
            "rate": st.sampled_from([8000, 16000, 44100]),
            "video": st.binary(max_size=20).map(lambda data: b"?" + data),
            "tokens": st.lists(st.integers(0, 65535), max_size=5),
            "segments": SEGMENTS,
        },
        optional={"txt": st.text(max_size=9)},
    ),
    max_size=6,
)


def expected_segments(recording: bytes, rate: int, stored: list[dict[str, Any]]) -> dict[str, Any]:
    """The files of a recording's segments; of a .json, what it should be once parsed."""
    samples = np.frombuffer(recording, "<i2")
    shown: dict[str, Any] = {}
    for number, segment in enumerate(stored):
        start, end = int(segment["start"] * rate), int(segment["end"] * rate)
        end = len(samples) if segment["end"] == -1 else max(end, 0)
        piece = samples[max(start, 0) : end]
        shown[f"{number:04d}.wav"] = wav(piece.tobytes(), rate)
        shown[f"{number:04d}.json"] = segment
        if "txt" in segment:
            shown[f"{number:04d}.txt"] = segment["txt"].encode()
    return shown


@settings(max_examples=settings().max_examples // 2)
@given(SAMPLES)
def test_any_shard_shows_its_files(tmp_path_factory: pytest.TempPathFactory, samples: list[dict[str, Any]]) -> None:
    shard = tmp_path_factory.mktemp("shard")
    metainfos, recordings = [], []
    expected: dict[str, bytes] = {}
    expected_parts: dict[str, Any] = {}
    for i, sample in enumerate(samples):
        key = f"speaker{i % 2}/utt{i}"
        metainfo = {"key": key, "sample_rate": sample["rate"], "info": {"segments": sample["segments"]}}
        if "txt" in sample:
            metainfo["txt"] = sample["txt"]
            expected[f"{key}.txt"] = sample["txt"].encode()
        metainfos.append(as_json(metainfo))
        recordings.append(pcm(i, sample["pcm"]))
        expected[f"{key}.json"] = metainfos[-1]
        expected[f"{key}.wav"] = wav(recordings[-1], sample["rate"])
        expected[f"{key}.bin"] = sample["video"]
        expected[f"{key}.token.npy"] = npy(np.array(sample["tokens"], "<u2"))
        parts = expected_segments(recordings[-1], sample["rate"], sample["segments"])
        expected_parts |= {f"{key}/{name}": part for name, part in parts.items()}
    write_shard(
        shard,
        audio=(INT16, recordings),
        metainfo=(UINT8, metainfos),
        token=(UINT16, [np.array(sample["tokens"], "<u2").tobytes() for sample in samples]),
        video=(UINT8, [sample["video"] for sample in samples]),
    )
    made = Made(shard)
    assert made.files() == expected
    parts = made.files("segments")
    assert parts.keys() == expected_parts.keys()
    for path, data in parts.items():
        if path.endswith(".json"):
            parsed = json.loads(data)
            del parsed["touchfs"]
            assert parsed == expected_parts[path]
        else:
            assert data == expected_parts[path], path
    assert made.facts.samples == len(samples)
    assert made.facts.seconds == pytest.approx(sum(sample["pcm"] / sample["rate"] for sample in samples))
    assert (made.facts.damaged, made.facts.report) == (0, "")


def test_every_content_reads_at_any_place(tmp_path: Path) -> None:
    segments = [{"start": 0.01, "end": 0.02, "txt": "x"}, {"start": 1, "end": 2}]
    write_speech(tmp_path, [(told("a", txt="text", info={"segments": segments}), pcm(0, 500)), (told("b"), b"")])
    made = Made(tmp_path)
    for view in sample_tables.VIEWS:
        whole = made.files(view)
        for path, content in contents(made.catalog, made.shard, view).items():
            check_reads(content, whole[path])


KEYS = (
    st.text(st.sampled_from("ab/.%~\n\ud800\udc80é") | st.characters(), max_size=6)
    | st.integers()
    | st.sampled_from(["a", "a/b", "a.wav/b", "ERROR", "ERROR.txt", "ERROR.txt/x", ".touchfs", "..", "/", "x" * 300])
)


@given(st.lists(st.tuples(KEYS, st.booleans(), st.booleans()), max_size=8))
def test_whatever_the_keys_each_sample_keeps_its_own_bytes(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[Any, bool, bool]]
) -> None:
    """Each sample's files say whose they are; some samples are damaged, so that there is an ERROR.txt too."""
    shard = tmp_path_factory.mktemp("shard")
    stored = []
    for i, (key, segmented, damaged) in enumerate(samples):
        metainfo = told(
            key, txt=f"text {i}", info={"segments": [{"start": 0, "end": -1, "txt": f"part {i}"}] * segmented}
        )
        stored.append((b"{" if damaged else as_json(metainfo), struct.pack("<h", i)))
    write_speech(shard, stored)
    made = Made(shard)
    seen: dict[str, list[int]] = {view: [] for view in sample_tables.VIEWS}
    for view in sample_tables.VIEWS:
        shown = made.files(view)
        table = made.catalog.tables[view]
        for path, row in rows(table):
            i = table.ordinal[row]
            if path.endswith(".txt") and i < len(samples):
                assert shown[path].decode() == f"{'text' if view == 'shards' else 'part'} {i}"
                assert os.fsencode(table.key(row)) == encode_key(str(samples[i][0])) or not samples[i][0]
            elif path.endswith((".wav", ".pcm")):
                assert shown[path][-2:] == struct.pack("<h", i)
                seen[view].append(i)
    assert sorted(seen["shards"]) == list(range(len(samples)))
    assert sorted(seen["segments"]) == [i for i, (_, seg, damaged) in enumerate(samples) if seg and not damaged]
    assert made.facts.damaged == sum(damaged for _, _, damaged in samples)
    reports = [
        path for path in made.files() if path in ("ERROR.txt", "ERROR~2.txt") and b" damaged" in made.files()[path]
    ]
    assert len(reports) == bool(made.facts.damaged)


def test_a_key_named_error_in_a_damaged_shard(tmp_path: Path) -> None:
    write_speech(tmp_path, [(told("ERROR", txt="mine"), b"ab"), (b"{", b"cd")])
    made = Made(tmp_path)
    assert set(made.files()) == {
        "ERROR.txt",
        "ERROR~2.txt",
        "ERROR~2.wav",
        "ERROR~2.json",
        "00000001.pcm",
        "00000001.json",
    }
    assert "sample 1 ('00000001'): metainfo is not JSON" in made.report
    assert made.files()["ERROR~2.txt"] == b"mine"


def test_a_key_named_error_in_a_sound_shard(tmp_path: Path) -> None:
    write_speech(tmp_path, [(told("ERROR", txt="mine"), b"ab")])
    assert set(Made(tmp_path).files()) == {"ERROR.txt", "ERROR.wav", "ERROR.json"}


def test_fields_of_one_extension(tmp_path: Path) -> None:
    write_shard(
        tmp_path,
        image=(UINT8, [b"image"]),
        video=(UINT8, [b"video"]),
        audio=(INT16, [b"ab"]),
        pair_audio=(INT16, [b"cd"]),
    )
    assert Made(tmp_path, 16000).files() == {
        "00000000.bin": b"image",
        "00000000.video.bin": b"video",
        "00000000.wav": wav(b"ab"),
        "00000000.pair_audio.wav": wav(b"cd"),
    }


def test_a_rate_for_audio_that_names_none(tmp_path: Path) -> None:
    write_speech(tmp_path, [({"key": "a"}, b"ab"), (told("b"), b"cd")])
    assert set(Made(tmp_path).files()) == {"a.pcm", "a.json", "b.wav", "b.json"}
    made = Made(tmp_path, 8000)
    assert made.files()["a.wav"] == wav(b"ab", 8000)
    assert made.files()["b.wav"] == wav(b"cd", 16000)


# Megatron-LM


@pytest.mark.parametrize("pieces", [0, 3])
def test_megatron(tmp_path: Path, pieces: int) -> None:
    """Documents of one sequence are files, of several directories, of none nothing; images are image files."""
    sequences = [tokens(1, 2), packed(JPEG), tokens(3), tokens()]
    path = write_prefix(tmp_path / "mm", INT32, sequences, [0, 2, 2, 3, 4], [0, 1, 0, 0])
    if pieces:
        split(str(tmp_path / "mm"), [9, 7, 3], pieces)
    facts = make_catalog(path, str(tmp_path / "catalog"))
    catalog = Catalog(str(tmp_path / "catalog"))
    assert files(catalog, path) == {
        "00000000/0000.npy": npy(tokens(1, 2)),
        "00000000/0001.jpg": JPEG,
        "00000002.npy": npy(tokens(3)),
        "00000003.npy": npy(tokens()),
    }
    assert files(catalog, path, "segments") == {}
    for name, content in contents(catalog, path, "shards").items():
        check_reads(content, files(catalog, path)[name])
    assert (facts.samples, facts.seconds, facts.report) == (4, 0, "")
    assert facts.index_size == os.path.getsize(path)
    assert facts.size == sum(each.nbytes for each in sequences)
    table = catalog.tables["shards"]
    assert {path: (table.key(row), table.ordinal[row]) for path, row in rows(table)} == {
        "00000000/0000.npy": ("00000000/0000", 0),
        "00000000/0001.jpg": ("00000000/0001", 1),
        "00000002.npy": ("00000002", 2),
        "00000003.npy": ("00000003", 3),
    }


@pytest.mark.parametrize(
    ("index", "words"), [(b"TNTIDX\0\0" + bytes(99), "legacy TNTIDX index"), (b"v1.2 3\nwav 512 7 a\n", "DALI index")]
)
def test_relatives_that_are_not_read_are_named(tmp_path: Path, index: bytes, words: str) -> None:
    path = Path(write_prefix(tmp_path / "x", INT32, []))
    path.write_bytes(index)
    facts = make_catalog(str(path), str(tmp_path / "catalog"))
    assert words in facts.report
    assert files(Catalog(str(tmp_path / "catalog")), str(path)) == {"ERROR.txt": facts.report.encode()}


def test_megatron_with_a_short_bin(tmp_path: Path) -> None:
    path = write_prefix(tmp_path / "x", INT32, [tokens(1), tokens(2, 3)])
    os.truncate(tmp_path / "x.bin", 8)
    facts = make_catalog(path, str(tmp_path / "catalog"))
    assert facts.damaged == 1
    assert "sample 1 ('00000001'): x.bin ends before this sample does" in facts.report
    assert set(files(Catalog(str(tmp_path / "catalog")), path)) == {"00000000.npy", "ERROR.txt"}


def test_metainfo_under_its_old_name_has_text_and_segments_too(tmp_path: Path) -> None:
    metainfo = as_json(told("a", txt="x", info={"segments": [{"start": 0, "end": -1, "txt": "y"}]}))
    write_shard(tmp_path, pair_audio=(INT16, [b"ab"]), pair_text=(UINT8, [metainfo]))
    made = Made(tmp_path)
    assert made.files()["a.txt"] == b"x"
    assert made.files("segments")["a/0000.wav"] == wav(b"ab")
    assert made.files("segments")["a/0000.txt"] == b"y"


# Bad input

SPEECH = [(told(f"utt{i}", txt=f"text {i}"), pcm(i, 100)) for i in range(4)]


def test_the_samples_that_fit_are_served(tmp_path: Path) -> None:
    write_speech(tmp_path, SPEECH)
    whole = Made(tmp_path).files()
    os.truncate(tmp_path / "audio.bin", 599)
    made = Made(tmp_path)
    assert made.facts.damaged == 2
    for i in (2, 3):
        del whole[f"utt{i}.wav"]
        assert f"sample {i} ('utt{i}'): audio.bin ends before this sample does" in made.report
    assert made.report.startswith(f"2 of the 4 samples of {tmp_path} are damaged; the others are served.\n")
    assert made.files() == whole | {"ERROR.txt": made.report.encode()}


def test_a_report_is_not_longer_than_anyone_reads(tmp_path: Path) -> None:
    write_speech(tmp_path, [(b"", b"")] * (REPORTED_MAX + 5) + [(told("k" * 10**5 + "\n"), b"")])
    os.truncate(tmp_path / "metainfo.bin", 10**5)
    made = Made(tmp_path)
    assert made.facts.damaged == REPORTED_MAX + 6
    assert "\n… and 6 more\n" in made.report
    assert len(made.report.splitlines()) < REPORTED_MAX + 10


def test_a_report_has_a_line_for_a_sample_whatever_its_key(tmp_path: Path) -> None:
    write_speech(tmp_path, [(told("two\nlines " + "k" * 10**5), b"ab")])
    (tmp_path / "audio.bin").write_bytes(b"")
    made = Made(tmp_path)
    assert len(made.report.splitlines()) == 5
    assert len(made.report) < 1000


def truncated_index(path: Path) -> None:
    os.truncate(path / "audio.idx", 50)


def of_another_count(path: Path) -> None:
    (path / "audio.idx").write_bytes(index_bytes(INT16, [200] * 4, [2, 400, 800, 1200]))


def unequal(path: Path) -> None:
    (path / "audio.idx").write_bytes(index_bytes(INT16, [200] * 3))


def no_index(path: Path) -> None:
    os.unlink(path / "audio.idx")


def nothing(path: Path) -> None:
    for name in os.listdir(path):
        os.unlink(path / name)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncated_index, "this has 50 (at byte 18)"),
        (of_another_count, "its entries are not those of 4 samples"),
        (unequal, "unequal numbers of samples: audio has 3, metainfo has 4"),
        (no_index, "audio.bin has no index"),
        (nothing, "not a TouchNet shard"),
    ],
)
def test_a_shard_that_cannot_be_served_says_why(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    write_speech(tmp_path, SPEECH)
    damage(tmp_path)
    made = Made(tmp_path)
    assert list(made.files()) == ["ERROR.txt"]
    assert made.files("segments") == {}
    assert words in made.report
    assert "This shard cannot be served." in made.report
    assert "Traceback" not in made.report
    assert (made.facts.samples, made.facts.size, made.facts.seconds) == (0, 0, 0)


@pytest.mark.parametrize("most", [100, pytest.param(KINDS_MAX, marks=pytest.mark.variant)])
def test_more_kinds_of_files_than_can_be_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Each rate is a kind of file, and catalogs number them with 16 bits: with more, files would show others' bytes."""
    monkeypatch.setattr(sample_tables, "KINDS_MAX", most)
    write_speech(tmp_path, [(b'{"sample_rate": %d}' % (i + 1), b"") for i in range(most + 10)])
    made = Made(tmp_path)
    assert list(made.files()) == ["ERROR.txt"]
    assert f"over {most} kinds of files" in made.report


def test_a_shard_that_is_not_there(tmp_path: Path) -> None:
    facts = make_catalog(str(tmp_path / "missing"), str(tmp_path / "catalog"))
    assert "no such shard" in facts.report
    assert facts.files == {}


def test_an_empty_shard(tmp_path: Path) -> None:
    write_speech(tmp_path, [])
    made = Made(tmp_path)
    assert made.files() == made.files("segments") == {}
    assert (made.facts.report, made.facts.samples, made.facts.damaged) == ("", 0, 0)


def test_segments_that_are_no_times_or_do_not_fit(tmp_path: Path) -> None:
    times: list[tuple[Any, Any]] = [
        (0, 10**9),
        (0.001, 1e308),
        ("0.001", "-1"),
        (None, []),
        (-5, -4),
        (0.002, 0.001),
        (float("nan"), float("inf")),
        (10**400, {}),
        ("x" * 10_000, 0),
    ]
    segments = [{"start": start, "end": end} for start, end in times]
    write_speech(
        tmp_path, [(told("a", info={"segments": [*segments, 5, "x", None]}), pcm(0, 32)), (told("neighbour"), b"!!")]
    )
    shown = Made(tmp_path).files("segments")
    sounds = [shown[path] for path in sorted(shown) if path.endswith(".wav")]
    assert sounds == [wav(pcm(0, 32)), wav(b""), wav(pcm(0, 32)[32:]), *[wav(b"")] * 6]
    for path, data in shown.items():
        if path.endswith(".json"):
            assert ("problem" in json.loads(data)["touchfs"]) == ("0002" not in path), path


def test_problems_do_not_make_kinds(tmp_path: Path) -> None:
    """Every segment that does not fit does so in another way; what is told of it is in its own .json."""
    segments = [{"start": 0, "end": 10 + i} for i in range(1000)]
    write_speech(tmp_path, [(told("a", info={"segments": segments}), pcm(0, 8))])
    made = Made(tmp_path)
    assert len(made.catalog.kinds) < 10
    assert made.facts.report == ""


def test_hostile_nests_and_numbers(tmp_path: Path) -> None:
    def nested(depth: int) -> bytes:
        return b'{"key": "nest%d", "sample_rate": 8000, "info": {"segments": [{"start": 0, "end": 1, "x": ' % depth + (
            b"[" * depth + b"]" * depth + b"}]}}"
        )

    stored = [nested(depth) for depth in (10, 200, 400, 600, 800, 900, 950, 100_000)] + [
        b'{"key": ' + b"7" * 4000 + b"}"
    ]
    write_speech(tmp_path, [(each, b"abcd") for each in stored])
    made = Made(tmp_path)
    assert made.files()["nest600.json"] == stored[3]
    assert {path for path in made.files("segments") if path.startswith("nest800/")} == {
        "nest800/0000.wav",
        "nest800/0000.json",
    }
    assert made.facts.damaged >= 1
    assert "nested too deep" in made.report


def test_deep_keys_take_no_more_memory_than_they_need(tmp_path: Path) -> None:
    write_speech(tmp_path, [(told("/".join(["d"] * 20_000) + str(i)), b"ab") for i in range(3)])
    made = Made(tmp_path)
    assert len(made.files()) == 6
    assert made.catalog.tables["shards"].rows == 7


def linked_to_itself(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to(path.name)


def unreadable(path: Path) -> None:
    """A file of sysfs has a size, and fewer bytes; root may read everything else."""
    os.unlink(path / "audio.idx")
    os.symlink("/sys/kernel/uevent_seqnum", path / "audio.idx")


@pytest.mark.parametrize(
    ("damage", "words"), [(linked_to_itself, "symbolic links"), (unreadable, "the file ends here")]
)
def test_a_shard_that_cannot_be_read_now(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    """Not all is known of what was wrong, so its files are not written down, and it is tried again."""
    write_speech(tmp_path / "shard", SPEECH)
    damage(tmp_path / "shard")
    facts = make_catalog(str(tmp_path / "shard"), str(tmp_path / "catalog"))
    assert words in facts.report
    assert facts.files == {}


def test_an_index_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    write_speech(tmp_path / "shard", SPEECH)
    with pytest.raises(SourceError, match="cannot be written"):
        make_catalog(str(tmp_path / "shard"), str(tmp_path / "missing/catalog"))


def test_a_sound_shard_leaves_no_descriptors(tmp_path: Path) -> None:
    write_speech(tmp_path, SPEECH)
    make_catalog(str(tmp_path), str(tmp_path / "catalog"))
    held = [
        os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{name}")
    ]
    assert not [path for path in held if path.startswith(str(tmp_path))]
