"""Audio that lists name, below a root: its segments are the samples that soundfile cuts, and nothing leads out."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lhotse
import numpy as np
import pytest
import recordings
import soundfile
from numpy.typing import NDArray
from tars import write_samples
from test_segments_of_all_kinds import (
    KEYS,
    PCM,
    RATE,
    SEGMENTS,
    derived,
    others,
    spans,
    touch,
    tree_of,
    walk,
)

from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, UsageError
from touchfs.indexing import open_dataset
from touchfs.limits import Limits
from touchfs.shard.options import Options
from touchfs.source.scratch.store import DIRECTORY_VARIABLE, Scratch
from touchfs.source.scratch.write_behind import WRITE_BEHIND
from touchfs.tree.tree import Tree

STEREO = np.random.default_rng(9).integers(-(2**15), 2**15, (RATE, 2), "<i2")
Make = Callable[[Path, Path], Path]


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("media")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "audio"
    (root / "talks").mkdir(parents=True)
    for key, pcm in zip(KEYS, PCM, strict=True):
        soundfile.write(root / f"{key}.wav", pcm, RATE, "PCM_16")
        soundfile.write(root / f"{key}.flac", pcm, RATE, "PCM_16")
    soundfile.write(root / "24.wav", PCM[0], RATE, "PCM_24")
    soundfile.write(root / "stereo.wav", STEREO, RATE, "PCM_16")
    return root


def options_of(root: Path, **others: Any) -> Options:
    return Options(limits=Limits(audio_root=str(root)), **others)


def tree(source: Path, root: Path, **others: Any) -> Tree:
    return tree_of(source, options_of(root, **others))


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def samples_in(wav: bytes, tmp_path: Path, dtype: str = "int16") -> NDArray[Any]:
    (tmp_path / "read.wav").write_bytes(wav)
    return soundfile.read(tmp_path / "read.wav", dtype=dtype)[0]


def report_of(shown: Tree) -> str:
    return walk(shown, "shards").get("ERROR.txt", b"").decode()


def nemo(root: Path, place: Path) -> Path:
    return write_lines(
        place / "nemo.jsonl",
        [
            {"key": key, "audio_filepath": f"{key}.wav", "info": {"segments": segments}}
            for key, segments in zip(KEYS, SEGMENTS, strict=True)
        ],
    )


def wenet(root: Path, place: Path) -> Path:
    return write_lines(
        place / "wenet.jsonl",
        [
            {"key": key, "wav": str(root / f"{key}.flac"), "info": {"segments": segments}}
            for key, segments in zip(KEYS, SEGMENTS, strict=True)
        ],
    )


def cuts(root: Path, place: Path) -> Path:
    """The cuts that Lhotse makes of recordings and supervisions, with its own paths, which are absolute."""
    made = []
    for key, segments in zip(KEYS, SEGMENTS, strict=True):
        recording = lhotse.Recording.from_file(root / f"{key}.wav", recording_id=key)
        supervisions = [
            lhotse.SupervisionSegment(
                f"{key}-{i}", key, each["start"], each["end"] - each["start"], text=each.get("txt")
            )
            for i, each in enumerate(segments)
        ]
        cut = recording.to_cut()
        cut.id, cut.supervisions = key, supervisions
        made.append(cut)
    lhotse.CutSet.from_cuts(made).to_jsonl(place / "cuts.jsonl")
    return place / "cuts.jsonl"


def kaldi(root: Path, place: Path) -> Path:
    files: dict[str, list[str]] = {"wav.scp": [], "segments": [], "text": [], "utt2spk": []}
    for key, segments in zip(KEYS, SEGMENTS, strict=True):
        files["wav.scp"].append(f"{key} {key}.flac")
        for i, each in enumerate(segments):
            files["segments"].append(f"{key}-{i} {key} {each['start']} {each['end']}")
            if "txt" in each:
                files["text"].append(f"{key}-{i} {each['txt']}")
    (place / "train").mkdir()
    for name, lines in files.items():
        (place / "train" / name).write_text("".join(f"{line}\n" for line in sorted(lines)))
    return place / "train"


@pytest.mark.parametrize("make", [nemo, wenet, cuts, kaldi])
def test_trees_are_those_of_touchnet(tmp_path: Path, root: Path, make: Make) -> None:
    (tmp_path / "touch").mkdir()
    (tmp_path / "lists").mkdir()
    expected, shown = tree_of(touch(tmp_path / "touch")), tree(make(root, tmp_path / "lists"), root)
    assert report_of(shown) == ""
    wanted, found = walk(expected, "segments"), walk(shown, "segments")
    assert others(found) == others(wanted)
    assert derived(found) == derived(wanted)
    if make in (nemo, wenet):  # the others store a segment in words of their own
        assert found == wanted
    wanted, found = walk(expected, "merged/max=30"), walk(shown, "merged/max=30")
    assert found == wanted
    assert sorted(name for name in found if name.endswith(".wav")) == [f"{key}/0000.wav" for key in KEYS]


@pytest.mark.parametrize("make", [nemo, wenet])
def test_plans_render_them(tmp_path: Path, root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "scratch"))
    (tmp_path / "touch").mkdir()
    (tmp_path / "lists").mkdir()
    expected, shown = tree_of(touch(tmp_path / "touch")), tree(make(root, tmp_path / "lists"), root)
    for plan in ("merged/max=30,rate=4000", "merged/max=0,rate=4000,format=flac"):
        wanted, found = walk(expected, plan), walk(shown, plan)
        assert found == wanted
        WRITE_BEHIND.wait()
        kept = Scratch(str(tmp_path / "scratch")).values()
        assert walk(shown, plan) == found and Scratch(str(tmp_path / "scratch")).values() == kept != []


def test_without_a_root_nothing_of_it_is_shown(tmp_path: Path, root: Path) -> None:
    for make in (nemo, cuts):
        found = walk(tree_of(make(root, tmp_path)), "shards")
        assert sorted(found) == sorted(f"{key}.json" for key in KEYS)
    with pytest.raises(NotFoundError, match="is a Kaldi data directory: add --audio-root DIR"):
        tree_of(kaldi(root, tmp_path))
    assert Options().hashed == str(Options()) == str(options_of(root)) != options_of(root).hashed


def test_a_line_of_nemo_is_its_span(tmp_path: Path, root: Path) -> None:
    lines = [
        {"audio_filepath": "talks/monday.wav", "offset": 0.25, "duration": 0.5, "text": "one", "lang": "en"},
        {"audio_filepath": str(root / "talks/monday.wav"), "offset": 0.75, "duration": 0.1, "text": "two"},
        {"audio_filepath": "talks/monday.flac", "offset": 1.5, "text": "to the end"},
        {"audio_filepath": "24.wav", "offset": 1, "duration": 0.25, "text": "of 24 bits"},
        {"audio_filepath": "stereo.wav", "offset": 0.125, "duration": 0.25, "text": "of two channels"},
        {"audio_filepath": "x.flac", "duration": 9, "text": "too long"},
        {"audio_filepath": "x.flac", "offset": "soon", "text": "no time"},
    ]
    shown = tree(write_lines(tmp_path / "x.jsonl", lines), root)
    stored, found = walk(shown, "shards"), walk(shown, "segments")
    assert stored["00000000.wav"] == (root / "talks/monday.wav").read_bytes()
    assert stored["00000002.flac"] == (root / "talks/monday.flac").read_bytes()
    assert stored["00000003.wav"] == (root / "24.wav").read_bytes()
    assert [found[f"{i:08d}/0000.txt"].decode() for i in range(7)] == [line["text"] for line in lines]
    expected = {
        0: PCM[0][2000:6000],
        1: PCM[0][6000:6800],
        2: PCM[0][12000:],
        4: STEREO[1000:3000],
        5: PCM[2],
        6: PCM[2][:0],
    }
    for number, samples in expected.items():
        assert np.array_equal(samples_in(found[f"{number:08d}/0000.wav"], tmp_path), samples)
    cut = soundfile.read(root / "24.wav", dtype="int32", start=8000, stop=10000)[0]
    assert np.array_equal(samples_in(found["00000003/0000.wav"], tmp_path, "int32"), cut)
    assert spans(found)["00000001/0000.json"] == (6000, 800)
    reasons = [derived(found)[f"{i:08d}/0000.json"].get("problem") for i in range(7)]
    assert reasons[:5] == [None] * 5 and "end" in reasons[5] and "not a time" in reasons[6]


def test_hours_are_those_of_the_lines(tmp_path: Path, root: Path) -> None:
    line = {"audio_filepath": "x.wav", "offset": 0.5, "duration": 0.25}
    shown = tree(write_lines(tmp_path / "x.jsonl", [line] * 4), root)
    (shard,) = shown.dataset.shards
    assert (shard.seconds, shard.timed, shard.segments) == (1.0, 4, 4)


def test_cuts_of_a_piece_and_recordings_of_lhotse(tmp_path: Path, root: Path) -> None:
    recording = lhotse.Recording.from_file(root / "x.flac", recording_id="x")
    cut = recording.to_cut().truncate(offset=0.5, duration=1.0)
    plain, cut.id, plain.id = cut.drop_supervisions(), "with", "without"
    cut.supervisions = [lhotse.SupervisionSegment("s", "x", 0.125, 0.5, text="hi", speaker="ann")]
    lhotse.CutSet.from_cuts([cut, plain]).to_jsonl(tmp_path / "cuts.jsonl")
    found = walk(tree(tmp_path / "cuts.jsonl", root), "segments")
    for name, loaded in (("with", cut.trim_to_supervisions()[0]), ("without", plain)):
        expected = np.round(loaded.load_audio()[0] * 2**15).astype(np.int16)
        assert np.array_equal(samples_in(found[f"{name}/0000.wav"], tmp_path), expected)
    assert found["with/0000.txt"] == b"hi"
    lhotse.RecordingSet.from_recordings([recording]).to_jsonl(tmp_path / "recordings.jsonl")
    shown = tree(tmp_path / "recordings.jsonl", root)
    assert walk(shown, "shards")["x.flac"] == (root / "x.flac").read_bytes()
    assert walk(shown, "segments") == {}
    assert shown.dataset.shards[0].seconds == 2.0


@pytest.mark.parametrize("name", ["a.mp3", "a.opus", "a.m4a"])
def test_segments_of_audio_whose_length_no_header_has(tmp_path: Path, media: Path, root: Path, name: str) -> None:
    """They are the same as of the same file in a tar."""
    coding = {"a.mp3": (), "a.opus": ("-c:a", "libopus"), "a.m4a": ("-c:a", "aac")}[name]
    recording = recordings.make(media, name, 48000, 1, *coding)
    shutil.copy(recording, root)
    fields = {"audio_filepath": name, "segments": [{"start": 0.5, "end": 1.25, "text": "a"}, {"start": 1.5, "end": 2}]}
    tar = write_samples(
        tmp_path / "0.tar", {"a": {name[2:]: recording.read_bytes(), "json": json.dumps(fields).encode()}}
    )
    line = write_lines(tmp_path / "x.jsonl", [{"key": "a"} | fields])
    expected, shown = tree_of(tar), tree(line, root)
    assert walk(shown, "shards")[name] == recording.read_bytes()
    listed = {bytes(each): entry.size for each, entry, _ in shown.entries(shown.resolve("segments/x/a").inode)}
    assert listed[b"0000.wav"] is None  # a listing reads no audio
    for path in ("segments/{}/a/0000.wav", "segments/{}/a/0001.wav", "merged/max=30/{}/a/0000.wav"):
        found, wanted = shown.resolve(path.format("x")), expected.resolve(path.format("0"))
        content, other = shown.content(found.inode), expected.content(wanted.inode)
        assert found.size == content.size == other.size
        assert bytes(content.read(0, content.size)) == bytes(other.read(0, other.size))
    dataset = open_dataset(str(line), options=options_of(root), in_memory=True, full=True)
    full = Tree(dataset, [1])
    sizes = {bytes(each): entry.size for each, entry, _ in full.entries(full.resolve("segments/x/a").inode)}
    assert sizes[b"0000.wav"] == shown.resolve("segments/x/a/0000.wav").size
    assert others(walk(full, "segments"))["a/0000.wav"] == read(shown, "segments/x/a/0000.wav")
    assert read(full, "merged/max=30/x/a/0000.wav") == read(shown, "merged/max=30/x/a/0000.wav")
    assert dataset.shards[0].seconds == pytest.approx(9, abs=0.1)


@pytest.mark.parametrize("name", ["x.wav", "x.flac", "24.wav", "stereo.wav", "a.opus"])
def test_slices_of_any_span(tmp_path: Path, media: Path, root: Path, name: str) -> None:
    """They are the same as of the same file in a tar."""
    shutil.copy(recordings.make(media, "a.opus", 48000, 1, "-c:a", "libopus"), root)
    tar = write_samples(tmp_path / "0.tar", {"k": {name.rpartition(".")[2]: (root / name).read_bytes()}})
    line = write_lines(tmp_path / "x.jsonl", [{"key": "k", "audio_filepath": name, "offset": 0.5}])
    expected, shown = tree_of(tar), tree(line, root)
    for span in ("all", "0.25-0.75", "1000s-5000s"):
        assert read(shown, f"slices/{span}/x/k.wav") == read(expected, f"slices/{span}/0/k.wav")


def read(shown: Tree, path: str) -> bytes:
    content = shown.content(shown.resolve(path).inode)
    return bytes(content.read(0, content.size))


def test_audio_that_cannot_be_decoded_keeps_its_texts(tmp_path: Path, root: Path) -> None:
    (root / "a.mp3").write_bytes(b"no recording")
    (root / "b.wav").write_bytes(b"RIFF and no more")
    lines = [{"audio_filepath": "a.mp3", "text": "hello"}, {"audio_filepath": "b.wav", "text": "bye"}]
    shown = tree(write_lines(tmp_path / "x.jsonl", lines), root)
    assert walk(shown, "shards")["00000000.mp3"] == b"no recording"
    for number, text in enumerate((b"hello", b"bye")):
        assert read(shown, f"segments/x/{number:08d}/0000.txt") == text
        with pytest.raises(FormatError):
            read(shown, f"segments/x/{number:08d}/0000.wav")


def test_a_directory_of_kaldi(tmp_path: Path, root: Path) -> None:
    place = tmp_path / "data" / "train"
    place.mkdir(parents=True)
    ran = tmp_path / "ran"
    (place / "wav.scp").write_text(
        f"b talks/monday.flac\na   talks/tuesday.wav  \npipe sox {root}/x.wav -t wav - | touch {ran} |\n"
        f"pipe2 |touch {ran}\nnothing\nmissing none.wav"
    )
    (place / "segments").write_text("s-a-0 a 0 2\ns-b-0 b 0.25 0.5\ns-b-1 b 0.5 0.75\ns-pipe pipe 0 1\ns-zz zz 0 1")
    (place / "text").write_text("s-a-0 Good morning .\ns-b-0\ns-b-1 二\n")
    (place / "utt2spk").write_text("s-a-0 s\ns-b-1 s")
    shown = tree(tmp_path / "data", root)
    assert [shard.name for shard in shown.dataset.shards] == ["train"]
    assert set(walk(shown, "shards")) == {"b.flac", "a.wav", "ERROR.txt"}
    found = walk(shown, "segments")
    texts = {"a/0000.txt": "Good morning .", "b/0000.txt": "", "b/0001.txt": "二"}
    assert {name: data.decode() for name, data in found.items() if name in texts} == texts
    assert found["b/0001.wav"][44:] == PCM[0][4000:6000].tobytes()
    assert json.loads(found["b/0001.json"])["speaker"] == "s"
    report = report_of(shown).splitlines()
    assert report[0].startswith("4 of the 6 samples of")
    assert ["are never run" in line for line in report[2:6]] == [True, True, False, False]
    assert report[4] == "sample 4 ('nothing'): has an id, but no path"
    assert report[5] == "sample 5 ('missing'): its audio 'none.wav': no such file or directory"
    assert not ran.exists()


def test_kaldi_without_segments_has_a_segment_for_each_recording(tmp_path: Path, root: Path) -> None:
    (tmp_path / "wav.scp").write_text("x x.wav\ny stereo.wav\n")
    (tmp_path / "text").write_text("x hello there\n")
    found = walk(tree(tmp_path / "wav.scp", root), "segments")
    assert sorted(found) == ["x/0000.json", "x/0000.txt", "x/0000.wav"]
    assert found["x/0000.txt"] == b"hello there"
    assert np.array_equal(samples_in(found["x/0000.wav"], tmp_path), PCM[2])
    assert walk(tree(tmp_path / "wav.scp", root, segments="srt"), "segments") == {}
    assert len(walk(tree(tmp_path / "wav.scp", root, segments="line"), "segments")) == 3


def test_what_leads_out_or_is_no_file_is_reported_and_the_rest_is_served(tmp_path: Path, root: Path) -> None:
    (tmp_path / "secret.wav").write_bytes(b"secret")
    (root / "out.wav").symlink_to("../secret.wav")
    (root / "up").symlink_to("..")
    (root / "full.wav").symlink_to(root / "x.wav")
    (root / "inside.wav").symlink_to("x.wav")
    (root / "directory.wav").mkdir()
    (root / "notes.txt").write_text("no recording")
    os.mkfifo(root / "pipe.wav")
    refused = {
        "../secret.wav": "leads out of",
        "talks/../../secret.wav": "leads out of",
        str(tmp_path / "secret.wav"): "is not below the audio root",
        str(root) + "/../secret.wav": "leads out of",
        str(root) + "//x.wav": "is not below the audio root",
        "out.wav": "leads out of",
        "up/secret.wav": "leads out of",
        "full.wav": "leads out of",
        "directory.wav": "is not a regular file",
        "pipe.wav": "is not a regular file",
        "none.wav": "no such file or directory",
        "talks": "has not the extension of a recording",
        "notes.txt": "has not the extension of a recording",
        "x\0.wav": "is not a path",
        "a/" * 2000 + "x.wav": "no such file or directory",
        "x" * 10_000: "is not a path",
        "y" * 300 + ".wav": "no such file or directory",
        "\ud800.wav": "is not a path",
        "https://example.org/x.wav": "is not below the audio root",
        "sox x.wav - |": "are never run",
        "": "is not a path",
    }
    try:
        os.mknod(root / "device.wav", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        refused["device.wav"] = "is not a regular file"
    except PermissionError:
        pass
    lines = [{"audio_filepath": path, "text": "x"} for path in refused]
    shown = tree(write_lines(tmp_path / "x.jsonl", [*lines, {"audio_filepath": "inside.wav", "text": "in"}]), root)
    report = report_of(shown).splitlines()
    assert report[0].startswith(f"{len(refused)} of the {len(refused) + 1} samples of")
    for line, (path, reason) in zip(report[2:], refused.items(), strict=False):
        assert reason in line, path
    found = walk(shown, "shards")
    assert [name for name in found if name.endswith(".wav")] == [f"{len(refused):08d}.wav"]
    assert found[f"{len(refused):08d}.wav"] == (root / "x.wav").read_bytes()
    assert b"secret" not in b"".join(data for name, data in found.items() if name.endswith(".wav"))


def exchange_for_link(root: Path, outside: Path) -> None:
    """The directory becomes a link to one outside, with the very same file, but for its contents."""
    stored = (root / "talks/monday.wav").stat()
    shutil.move(root / "talks", outside / "talks")
    (outside / "talks/monday.wav").write_bytes(bytes(stored.st_size))
    os.utime(outside / "talks/monday.wav", ns=(stored.st_atime_ns, stored.st_mtime_ns))
    (root / "talks").symlink_to(outside / "talks")


def exchange_for_pipe(root: Path, outside: Path) -> None:
    (root / "talks/monday.wav").unlink()
    os.mkfifo(root / "talks/monday.wav")


def append(root: Path, outside: Path) -> None:
    with (root / "talks/monday.wav").open("ab") as file:
        file.write(b"more")


def rewrite(root: Path, outside: Path) -> None:
    data = (root / "talks/monday.wav").read_bytes()
    (root / "talks/monday.wav").write_bytes(data[::-1])


def remove(root: Path, outside: Path) -> None:
    (root / "talks/monday.wav").unlink()


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("change", [exchange_for_link, exchange_for_pipe, append, rewrite, remove])
def test_a_file_that_changes_after_it_was_indexed_is_an_error(
    tmp_path: Path,
    root: Path,
    change: Callable[[Path, Path], None],
    is_open: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("touchfs.source.local.VERIFY_SECONDS", 0.0)
    line = {"key": "k", "audio_filepath": "talks/monday.wav", "offset": 0.25, "duration": 0.5}
    other = {"key": "o", "audio_filepath": "x.wav", "offset": 0.25, "duration": 0.5}
    shown = tree(write_lines(tmp_path / "x.jsonl", [line, other]), root)
    (tmp_path / "outside").mkdir()
    paths = ["shards/x/k.wav", "segments/x/k/0000.wav", "merged/max=30/x/k/0000.wav"]
    contents = [shown.content(shown.resolve(path).inode) for path in paths]
    if is_open:
        assert all(len(content.read(0, content.size)) == content.size for content in contents)
    change(root, tmp_path / "outside")
    for content in contents:
        with pytest.raises((ChangedError, SourceError)):
            content.read(content.size - 100, 100)
    for path in paths:
        with pytest.raises((ChangedError, SourceError)):
            content = shown.content(shown.resolve(path).inode)
            content.read(0, content.size)
    served = shown.content(shown.resolve("segments/x/o/0000.wav").inode)
    assert bytes(served.read(44, served.size)) == PCM[2][2000:6000].tobytes()


def test_a_root_that_is_none(tmp_path: Path, root: Path) -> None:
    path = nemo(root, tmp_path)
    for wrong in (tmp_path / "none", root / "x.wav"):
        with pytest.raises(NotFoundError, match="no such directory of audio"):
            tree(path, wrong)
    with pytest.raises(UsageError):
        replace(options_of(root), segments="lines")


def test_another_root_is_another_index(tmp_path: Path, root: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", [{"key": "k", "audio_filepath": "x.wav"}])
    other = tmp_path / "other"
    other.mkdir()
    soundfile.write(other / "x.wav", PCM[1], RATE, "PCM_16")
    shown = [walk(tree(path, each), "shards") for each in (root, other, root)]
    assert shown[0] == shown[2] == {"k.json": path.read_bytes(), "k.wav": (root / "x.wav").read_bytes()}
    assert shown[1]["k.wav"] == (other / "x.wav").read_bytes()
