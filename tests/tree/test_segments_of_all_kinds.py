"""The same speech shows the same segments, whatever kind of shard it is in."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from tars import add, write_samples
from tree_files import files_below

from touchfs.bulk.convert.job import convert
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.target import Target
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.containers.shar.write.writer import SharWriter
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import FormatError
from touchfs.format import wav
from touchfs.indexing import open_dataset
from touchfs.limits import Limits
from touchfs.shard.options import Options
from touchfs.tree.tree import Tree

RATE = 8000
KEYS = ["talks/monday", "talks/tuesday", "x"]
# Times that are whole samples, so that all rules of rounding agree.
SEGMENTS = [
    [{"start": 0.25, "end": 0.5, "txt": "Good morning."}, {"start": 0.625, "end": 1.0, "txt": "早上好。"}],
    [{"start": 0.0, "end": 2.0, "txt": "All of it."}],
    [{"start": 0.125, "end": 0.25, "txt": "a"}, {"start": 0.25, "end": 0.5, "txt": "b"}, {"start": 1.5, "end": 2.0}],
]
PCM = [np.random.default_rng(i).integers(-(2**15), 2**15, 2 * RATE, "<i2") for i in range(len(KEYS))]
Files = dict[str, bytes]


def metainfo(i: int) -> bytes:
    return json.dumps({"key": KEYS[i], "sample_rate": RATE, "info": {"segments": SEGMENTS[i]}}).encode()


def recording(i: int, form: str, subtype: str = "PCM_16") -> bytes:
    file = io.BytesIO()
    soundfile.write(file, PCM[i], RATE, subtype, format=form)
    return file.getvalue()


def srt(i: int) -> bytes:
    def time(seconds: float) -> str:
        return f"00:00:{int(seconds):02d},{round(seconds % 1 * 1000):03d}"

    cues = [f"{time(each['start'])} --> {time(each['end'])}\n{each.get('txt', '')}\n" for each in SEGMENTS[i]]
    return "\n".join(cues).encode()


def touch(place: Path) -> Path:
    with TouchNetWriter(place / "0", {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
        for i, pcm in enumerate(PCM):
            writer.add({"audio": pcm.tobytes(), "metainfo": metainfo(i)})
    return place


def tar_of(make: Callable[[int], Files]) -> Callable[[Path], Path]:
    return lambda place: write_samples(place / "0.tar", {key: make(i) for i, key in enumerate(KEYS)})


def shar(place: Path) -> Path:
    source, output = place / "touch", place / "shar"
    source.mkdir()
    convert(str(touch(source)), str(output), SharTarget())
    return output


KINDS: dict[str, Callable[[Path], Path]] = {
    "wav and json in a tar": tar_of(lambda i: {"wav": recording(i, "WAV"), "json": metainfo(i)}),
    "flac and json in a tar": tar_of(lambda i: {"flac": recording(i, "FLAC"), "json": metainfo(i)}),
    "wav of 24 bits in a tar": tar_of(lambda i: {"wav": recording(i, "WAV", "PCM_24"), "json": metainfo(i)}),
    "wav and srt in a tar": tar_of(lambda i: {"wav": recording(i, "WAV"), "srt": srt(i)}),
    "wav and NAME.json in a tar": tar_of(lambda i: {"wav": recording(i, "WAV"), "ann.json": metainfo(i)}),
    "Shar": shar,
}


def tree_of(source: Path, options: Options = Options()) -> Tree:  # noqa: B008
    dataset = open_dataset(os.fspath(source), options=options, in_memory=True)
    return Tree(dataset, range(1, len(dataset.shards) + 1))


def walk(tree: Tree, path: str) -> dict[str, bytes]:
    """The files below the shards of a view."""
    return {name.partition("/")[2]: data for name, data in files_below(tree, path).items()}


def derived(files: Mapping[str, bytes]) -> dict[str, Any]:
    return {name: json.loads(data)["touchfs"] for name, data in files.items() if name.endswith(".json")}


def spans(files: Mapping[str, bytes]) -> dict[str, tuple[int, int]]:
    return {name: (each["offset"], each["length"]) for name, each in derived(files).items()}


def others(files: Mapping[str, bytes]) -> Files:
    return {name: data for name, data in files.items() if not name.endswith(".json")}


def widened(files: Mapping[str, bytes]) -> Files:
    """The same with 24 bits in each `.wav`."""
    wide = dict(files)
    for name in (name for name in files if name.endswith(".wav")):
        pcm = np.frombuffer(files[name][44:], "<i2")
        data = np.frombuffer((pcm.astype("<i4") << 8).tobytes(), np.uint8).reshape(-1, 4)[:, :3].tobytes()
        wide[name] = wav.build_header(len(data), RATE, bits=24) + data
    return wide


@pytest.mark.parametrize("kind", KINDS)
def test_trees_are_those_of_touchnet(tmp_path: Path, kind: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    expected, tree = tree_of(touch(tmp_path / "a")), tree_of(KINDS[kind](tmp_path / "b"))
    wanted, found = walk(expected, "segments"), walk(tree, "segments")
    if "srt" in kind:  # a cue always has a text
        wanted["x/0002.txt"] = b""
    if "24 bits" in kind:
        wanted = widened(wanted)
    assert len(found) == 18 if "srt" in kind else 17
    assert others(found) == others(wanted)
    assert derived(found) == derived(wanted)
    if "json" in kind:
        assert found == wanted
    wanted, found = walk(expected, "merged/max=30"), walk(tree, "merged/max=30")
    assert found == (widened(wanted) if "24 bits" in kind else wanted)
    assert sorted(name for name in found if name.endswith(".wav")) == [f"{key}/0000.wav" for key in KEYS]


def test_segments_of_pcm_are_ranges_of_the_tar(tmp_path: Path) -> None:
    path = KINDS["wav and json in a tar"](tmp_path)
    stored = path.read_bytes()
    for name, entry in (("0000", (0.25, 0.5)), ("0001", (0.625, 1.0))):
        tree = tree_of(path)
        file = tree.resolve(f"segments/0/talks/monday/{name}.wav")
        attributes = tree.attributes(file.inode)
        offset, size = int(attributes["offset"]), int(attributes["size"])
        start, end = (int(seconds * RATE) for seconds in entry)
        assert stored[offset : offset + size] == PCM[0][start:end].tobytes()


def test_a_rule_may_be_named(tmp_path: Path) -> None:
    other = {"segments": [{"start": 0, "end": 1, "text": "of the json"}]}
    files = {"wav": recording(0, "WAV"), "json": json.dumps(other).encode(), "srt": srt(0)}
    path = write_samples(tmp_path / "x.tar", {"a": files})

    def texts(**options: Any) -> list[bytes]:
        found = walk(tree_of(path, Options(**options)), "segments")
        return [data for name, data in sorted(found.items()) if name.endswith(".txt")]

    assert texts() == texts(segments="first") == texts(segments="segments") == [b"of the json"]
    assert texts(segments="srt") == [b"Good morning.", "早上好。".encode()]
    assert texts(segments="none") == texts(segments="words") == texts(segments="vtt") == []


def test_what_is_damaged_is_reported_and_the_rest_is_served(tmp_path: Path) -> None:
    wav = recording(0, "WAV")
    samples = {
        "a": {"wav": wav, "json": b"{", "srt": srt(0)},
        "b": {"wav": wav, "srt": b"1\n00:00:00,000 --> soon\nx\n"},
        "c": {"wav": wav, "json": b'{"segments": "none"}', "TextGrid": b"\xff\xfe\xff"},
        "d": {"wav": wav, "eaf": b'<!DOCTYPE x [<!ENTITY a "b">]><x/>'},
        "e": {"wav": wav, "json": b'{"x": "' + bytes(2000) + b'"}'},
        "f": {"jpg": b"no recording", "json": b"{", "srt": b"-->"},
        "g": {"wav": wav, "txt": b"a transcript"},
        "h": {"wav": wav, "json": b"[" * 100_000},
    }
    tree = tree_of(write_samples(tmp_path / "x.tar", samples), Options(limits=Limits(json=1000)))
    assert "ERROR.txt" not in walk(tree, "shards")
    (report,) = (data.decode() for name, data in walk(tree, "segments").items() if name == "ERROR.txt")
    lines = report.splitlines()
    assert lines[0].startswith("All 8 samples of")
    for line, words in zip(
        lines[2:],
        [
            "sample 0 ('a'): no segments are read from its json: is not JSON: Expecting",
            "sample 1 ('b'): no segments are read from its srt: line 2: ",
            "sample 2 ('c'): no segments are read from its TextGrid: line 1: is not UTF-16",
            "sample 3 ('d'): no segments are read from its eaf: declares a document type",
            "sample 4 ('e'): no segments are read from its json: it has over 1,000 bytes",
            "sample 7 ('h'): no segments are read from its json: it has over 1,000 bytes",
            "",
            "Repair the shard",
        ],
        strict=True,
    ):
        assert line.startswith(words)
    kept = ["ERROR.txt", "a/0000.txt", "a/0000.wav", "a/0001.txt", "a/0001.wav"]
    assert sorted(others(walk(tree, "segments"))) == kept


def test_links_to_the_same_segments_do_not_multiply_them_without_end(tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    entries = json.dumps({"segments": [{"start": 0, "end": 1, "text": "a"}] * 1000}).encode()
    with tarfile.open(path, "w") as tar:
        add(tar, "0.wav", recording(0, "WAV"))
        add(tar, "0.json", entries)
        for i in range(1, 50):
            for name in ("wav", "json"):
                made = tarfile.TarInfo(f"{i}.{name}")
                made.type, made.linkname = tarfile.LNKTYPE, f"0.{name}"
                tar.addfile(made)
    tree = tree_of(path)
    assert 1 <= len({name.split("/")[0] for name in walk(tree, "segments")}) < 10
    (report,) = (data.decode() for name, data in walk(tree, "segments").items() if name == "ERROR.txt")
    assert "no segments are read from its json: too many links lead to it" in report


def test_without_a_recording_that_can_be_cut_there_are_texts_and_a_reason(tmp_path: Path) -> None:
    line = json.dumps({"id": "a", "segments": [{"start": 0, "end": 1, "text": "hello"}]})
    (tmp_path / "x.jsonl").write_text(line + "\n" + "{}\n")
    write_samples(tmp_path / "y.tar", {"a": {"pcm": b"?", "json": line.encode()}, "b": {"json": line.encode()}})
    tree = tree_of(tmp_path)
    assert walk(tree, "merged/max=30") == {}
    assert sorted(os.fsdecode(name) for name, _, _ in tree.entries(tree.resolve("segments/y").inode)) == ["a"]
    for path, reason in (
        ("segments/x/a", "the sample has no recording"),
        ("segments/y/a", "no parts can be cut out of its recording, .pcm"),
    ):
        directory = tree.resolve(path).inode
        files = {name: tree.content(entry.inode).read(0, 10**4) for name, entry, _ in tree.entries(directory)}
        assert files[b"0000.txt"] == b"hello"
        assert json.loads(files.pop(b"0000.json"))["touchfs"] == {"key": "a", "segment": 0, "problem": reason}
        assert len(files) == 1


def test_segments_survive_conversions(tmp_path: Path) -> None:
    """Also where TouchNet, which truncates times, has other samples than Lhotse, which rounds them."""
    told = [{"start": i / 1000, "end": (i + 2) / 1000, "txt": f"{i}"} for i in range(1, 200, 3)]
    places = [str(tmp_path / name) for name in ("touch", "tar", "shar", "back")]
    (tmp_path / "touch").mkdir()
    with TouchNetWriter(tmp_path / "touch" / "0", {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
        for key, rate in (("a/b", 16000), ("c", 22050), ("e", 8000)):
            metainfo = {"key": key, "sample_rate": rate, "info": {"segments": told}}
            writer.add({"audio": PCM[0].tobytes(), "metainfo": json.dumps(metainfo).encode()})
    convert(places[0], places[1], TarTarget())
    convert(places[1], places[2], SharTarget())
    convert(places[2], places[3], TouchTarget())
    for view in ("segments", "merged/max=30", "merged/max=0.1,gap=0.5"):
        first, *found = (walk(tree_of(Path(place)), view) for place in places)
        assert first == found[2]
        assert len(first) > 2 * 3
        assert [others(each) for each in found] == [others(first)] * 3
        if view == "segments":
            assert [spans(files) for files in found] == [spans(first)] * 3


def test_supervisions_keep_their_samples_in_touchnet(tmp_path: Path) -> None:
    with SharWriter(tmp_path / "shar", {"recording": "wav"}, compress_jsonl=False) as writer:
        for key, rate in (("a", 16000), ("b", 22050)):
            pairs = enumerate((i / 1000, (1 + i % 7) / 1000) for i in range(1, 200, 3))
            supervisions = [
                {"id": f"{key}{i}", "recording_id": key, "start": start, "duration": duration, "channel": 0}
                for i, (start, duration) in pairs
            ]
            cut = {"id": key, "start": 0, "duration": len(PCM[0]) / rate, "channel": 0, "supervisions": supervisions}
            file = io.BytesIO()
            soundfile.write(file, PCM[0], rate, "PCM_16", format="WAV")
            writer.write(cut, {"recording": file.getvalue()})
    convert(str(tmp_path / "shar"), str(tmp_path / "touch"), TouchTarget())
    wanted, found = (walk(tree_of(tmp_path / name), "segments") for name in ("shar", "touch"))
    assert spans(found) == spans(wanted)
    assert others(found) == others(wanted)


@pytest.mark.parametrize("target", [TouchTarget(), SharTarget()])
def test_segments_of_any_rule_survive(tmp_path: Path, target: Target) -> None:
    whisper = {"segments": [{"id": 7, "start": 0.00013, "end": 0.5, "text": " Good.", "de": "Gut.", "tokens": [1]}]}
    words = {"words": [{"word": "good", "offset_samples": 3, "num_samples": 4000, "spk": "A", "channel": 1}]}
    ctm = b"a 1 0.25 0.5 good 0.9\na 1 1.0 0.125 morning\n"
    samples = {
        "a": {"wav": recording(0, "WAV"), "srt": srt(0)},
        "b": {"wav": recording(1, "WAV"), "json": json.dumps(whisper).encode()},
        "c": {"wav": recording(2, "WAV"), "json": json.dumps(words).encode(), "txt": b"good"},
        "d": {"wav": recording(0, "WAV"), "ctm": ctm},
        "e": {"wav": recording(0, "WAV"), "txt": b"0.500000\t1.000000\tlabel\n"},
        "f": {"wav": recording(0, "WAV"), "json": b'{"id": "f", "supervisions": []}', "srt": srt(0)},
    }
    path = write_samples(tmp_path / "x.tar", samples)
    convert(str(path), str(tmp_path / "out"), target)
    wanted, found = others(walk(tree_of(path), "segments")), others(walk(tree_of(tmp_path / "out"), "segments"))
    assert found == wanted
    assert {name.partition("/")[0] for name in wanted} == set(samples)
    described = json.loads(walk(tree_of(tmp_path / "out"), "segments")["c/0000.json"])
    assert described["speaker"] == "A"


def test_segments_that_cannot_be_stored_stop_a_conversion(tmp_path: Path) -> None:
    for files, words in (
        ({"mp3": b"ID3", "srt": srt(0)}, "the length of its recording is not known.*srt.*--segments none"),
        ({"wav": recording(0, "WAV"), "srt": b"1\nx --> y\n"}, "no segments are read from its srt: line 2"),
    ):
        path = write_samples(tmp_path / "x.tar", {"a": files})
        with pytest.raises(FormatError, match=words):
            convert(str(path), str(tmp_path / "out"), TouchTarget())
        shutil.rmtree(tmp_path / "out")
        convert(str(path), str(tmp_path / "tars"), TarTarget())
        shutil.rmtree(tmp_path / "tars")


@pytest.mark.parametrize("target", [TouchTarget(), SharTarget()])
def test_segments_beside_a_recording_of_unknown_length_survive(tmp_path: Path, target: Target) -> None:
    """A conversion reads the recording to know its length."""
    file = io.BytesIO()
    soundfile.write(file, PCM[0], RATE, format="MP3")
    path = write_samples(tmp_path / "x.tar", {"a": {"mp3": file.getvalue(), "srt": srt(0)}})
    convert(str(path), str(tmp_path / "out"), target)
    wanted, found = walk(tree_of(path), "segments"), walk(tree_of(tmp_path / "out"), "segments")
    assert {name: len(data) for name, data in others(found).items()} == {
        name: len(data) for name, data in others(wanted).items()
    }
    assert found["a/0000.txt"] == wanted["a/0000.txt"] == b"Good morning."
