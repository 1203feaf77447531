import json
import os
import subprocess
import sys
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from make_data import audio_and_metainfo, shards, tree, write_wav
from memory import growth

from touchfs.bulk.pack.touchnet import PackReport, pack_touch
from touchfs.core.errors import FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.registry.find import find_shards

PLAN = ".touchfs-pack.json"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Seven samples, lines ended in every way, an empty line, keys and texts of every kind."""
    for i in range(7):
        write_wav(tmp_path / "wav" / f"{i}.wav", [800, 0, 33, 1, 5000, 2, 100][i])
    absolute = tmp_path / "wav" / "6.wav"
    jsonl = tmp_path / "list.jsonl"
    jsonl.write_bytes(
        b'{"key": "a/b", "wav": "wav/0.wav", "txt": "\xe4\xbd\xa0\xe5\xa5\xbd \\u00fc"}\n'
        b'  {"key": 7, "wav":"wav/1.wav","sample_rate": 44100, "x": [1.50, 1e3, null]}  \r\n'
        b'{"wav": "wav/2.wav", "txt": "a\xe2\x80\xa8b\\u000b"}\r'
        b'{"wav": "wav/3.wav", "info": {"segments": [{"start": 0.0, "end": 1, "txt": ""}]}}\n'
        b" \n"
        b'{"wav": "wav/4.wav", "wav2": 1}\r\n{"wav": "wav/5.wav"}\n' + json.dumps({"wav": str(absolute)}).encode()
    )
    return jsonl


@pytest.mark.parametrize("samples_per_shard", [1, 2, 3, 1000])
def test_byte_for_byte(data: Path, samples_per_shard: int) -> None:
    output = data.parent / "deep" / "out"
    told: list[tuple[int, int]] = []
    report = pack_touch(
        data, output, samples_per_shard=samples_per_shard, progress=lambda lines, total: told.append((lines, total))
    )
    expected = audio_and_metainfo(data, str(output), samples_per_shard, 16000)
    assert tree(output) == expected
    assert report == PackReport(expected["data.list"].count(b"\n"), 7, 0)
    assert told == [(lines, 8) for lines in range(9)]


def test_in_parallel(data: Path, processes: Executor) -> None:
    report = pack_touch(data, data.parent / "out", samples_per_shard=2, executor=processes)
    assert tree(data.parent / "out") == audio_and_metainfo(data, str(data.parent / "out"), 2, 16000)
    assert report.samples == 7


@pytest.mark.parametrize("parallel", [False, True])
def test_paths_as_typed(data: Path, monkeypatch: pytest.MonkeyPatch, processes: Executor, parallel: bool) -> None:
    executor = processes if parallel else None  # which run in another directory
    monkeypatch.chdir(data.parent)
    write_wav(Path("elsewhere/wav/0.wav"), 9)
    pack_touch("list.jsonl", "./out/", samples_per_shard=5, executor=executor)
    assert tree(Path("out")) == audio_and_metainfo(data, "./out/", 5, 16000)
    assert Path("out/data.list").read_text().splitlines()[0] == "./out//000000000 audio+metainfo"
    # The current directory comes first, as in TouchNet.
    monkeypatch.chdir(data.parent / "elsewhere")
    pack_touch("../list.jsonl", "out", samples_per_shard=1, executor=executor)
    assert len(Path("out/000000000/audio.bin").read_bytes()) == 2 * 9


def test_another_rate(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", 99, rate=8000)
    (tmp_path / "l.jsonl").write_text('{"wav": "a.wav"}\n')
    pack_touch(tmp_path / "l.jsonl", tmp_path / "out", rate=8000)
    assert tree(tmp_path / "out") == audio_and_metainfo(tmp_path / "l.jsonl", str(tmp_path / "out"), 1000, 8000)


def test_nothing_to_pack(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").touch()
    assert pack_touch(tmp_path / "l.jsonl", tmp_path / "out") == PackReport(0, 0, 0)
    assert tree(tmp_path / "out") == {"data.list": b""}


BAD = [
    (b'{"wav": "none.wav"}', NotFoundError, ["none.wav", "no such file"]),
    (b'{"wav": "."}', SourceError, ["not a file"]),
    (b'{"wav": "pipe"}', SourceError, ["pipe: cannot be read: not a file"]),
    (b'{"wav": "a\\u0000b"}', SourceError, ["cannot be read"]),
    (b'{"wav": "cut.wav"}', FormatError, ["cut.wav", "cut short", "(at byte 36)"]),
    (b'{"wav": "cut.flac"}', FormatError, ["cut.flac: ", "Invalid data"]),
    (b'{"wav": "list.jsonl"}', FormatError, ["list.jsonl: ", "Invalid data"]),
    (b'{"wav": "empty"}', FormatError, ["empty: ", "Invalid data"]),
    (b'{"wav": 3}', FormatError, ['expected the path of a file as "wav"']),
    (b'["wav"]', FormatError, ["expected a JSON object"]),
    (b'{"key": 3', FormatError, ["not JSON"]),
    (b"[" * 100_000, FormatError, ["not JSON"]),
    (b'{"wav": "wav/0.wav", "txt": "\\ud800"}', FormatError, ["UTF-8"]),
    (b'{"wav": "wav/0.wav", "txt": "\xff"}', FormatError, ["not UTF-8"]),
]


def add_bad(data: Path) -> None:
    """What the lines above name. Each line makes a shard of two lines fail, the fifth."""
    folder = data.parent
    soundfile.write(folder / "cut.flac", np.random.default_rng(1).normal(size=50_000), 16000)
    (folder / "cut.flac").write_bytes((folder / "cut.flac").read_bytes()[:-3])
    (folder / "cut.wav").write_bytes((folder / "wav" / "0.wav").read_bytes()[:-1])
    (folder / "empty").touch()
    os.mkfifo(folder / "pipe")


@pytest.mark.parametrize(("line", "kind", "words"), BAD, ids=lambda value: str(value)[:20])
def test_a_sample_that_cannot_be_packed(
    data: Path, line: bytes, kind: type[TouchfsError], words: list[str], processes: Executor
) -> None:
    add_bad(data)
    data.write_bytes(data.read_bytes() + b"\n" + line + b"\n")
    whole = audio_and_metainfo_of_the_first(data, 8)
    for executor in (None, processes):
        output = data.parent / f"out{executor is None}"
        output.mkdir()
        (output / "notes").write_bytes(b"of the user")
        with pytest.raises(kind) as caught:
            pack_touch(data, output, samples_per_shard=2, executor=executor)
        message = str(caught.value)
        assert message.startswith(f"{data}: line 9: ")
        assert message.endswith("; fix it and pack again, or skip it with --skip-bad")
        assert "\n" not in message
        assert all(word in message for word in words), message
        # What was finished stays, to be resumed, and nothing else does.
        left = tree(output)
        assert left.pop("notes") == b"of the user"
        assert json.loads(left.pop(PLAN))["num-utt-per-shard"] == 2
        assert left == {name: whole[name] for name in left}
        assert len(left) == 16


def audio_and_metainfo_of_the_first(data: Path, count: int) -> dict[str, bytes]:
    first = data.parent / "first.jsonl"
    with open(data, encoding="utf-8", errors="surrogateescape") as file:
        first.write_text("".join(list(file)[:count]))
    return audio_and_metainfo(first, "", 2, 16000)


def test_bad_samples_are_skipped(data: Path, processes: Executor) -> None:
    add_bad(data)
    good = data.read_bytes()
    bad = b"\n".join(line for line, _, _ in BAD)
    data.write_bytes(bad[:-1] + b"\xff}\n" + good)
    first_good = 1 + len(BAD)
    outputs = data.parent / "one", data.parent / "two"
    for output, executor in zip(outputs, (None, processes), strict=True):
        report = pack_touch(data, output, samples_per_shard=5, executor=executor, skip_bad=True)
        assert report == PackReport(5, 7, len(BAD))
        told = [json.loads(line) for line in (output / "skipped.jsonl").read_bytes().splitlines()]
        assert [one["line"] for one in told] == list(range(1, first_good))
        for one, (line, _, words) in zip(told[:-1], BAD[:-1], strict=True):
            assert one["text"].encode("utf-8") == line
            assert all(word in one["reason"] for word in words), one["reason"]
        assert told[-1]["text"].encode("utf-8", "surrogateescape") == BAD[-1][0][:-1] + b"\xff}"
        assert not list(output.glob(".touchfs*"))
        wanted = tree(output)
        # The same samples in the same shards as if the bad lines were empty.
        blank = data.parent / "blank.jsonl"
        blank.write_bytes(b"\n" * len(BAD) + good)
        expected = audio_and_metainfo(blank, str(output), 5, 16000)
        assert {name: wanted[name] for name in expected} == expected
        assert set(wanted) - set(expected) == {"skipped.jsonl"}


def test_nothing_bad_no_list(data: Path) -> None:
    assert pack_touch(data, data.parent / "out", skip_bad=True).skipped == 0
    assert tree(data.parent / "out") == audio_and_metainfo(data, str(data.parent / "out"), 1000, 16000)


@pytest.mark.parametrize("datatypes", ["metainfo", "audio", "video+metainfo"])
def test_other_datatypes(data: Path, datatypes: str, processes: Executor) -> None:
    for i, name in enumerate(["a.mp4", "b c.webm", "nothing"]):
        (data.parent / name).write_bytes(np.random.default_rng(i).bytes(i * 70_001))
    rows: list[dict[str, object]] = [
        {"key": "ü", "video": "a.mp4", "wav": "wav/0.wav", "x": 1.50},
        {"video": "b c.webm", "wav": "wav/4.wav", "sample_rate": 8000},
        {"video": "nothing", "wav": "wav/1.wav", "nested": {"a": [None, float("nan")]}},
    ]
    data.write_text("".join(json.dumps(row) + " \n" for row in rows))
    output = str(data.parent / "out")
    for executor in (None, processes):
        report = pack_touch(
            data, f"{output}{executor is None}", datatypes=datatypes, samples_per_shard=2, executor=executor
        )
        assert report == PackReport(2, 3, 0)

    def make(row: dict[str, object]) -> dict[str, bytes]:
        pcm = soundfile.read(data.parent / str(row["wav"]), dtype="int16")[0].tobytes()
        video = (data.parent / str(row["video"])).read_bytes()
        metainfo = json.dumps(row, ensure_ascii=False).encode()
        made = {"audio": pcm, "metainfo": metainfo, "video": video}
        return {name: made[name] for name in datatypes.split("+")}

    lines = data.read_text().splitlines()
    for sequential in (False, True):
        expected = shards(lines, f"{output}{sequential}", 2, datatypes, make)
        assert tree(Path(f"{output}{sequential}")) == expected


def test_a_video_that_is_not_there(data: Path) -> None:
    data.write_text('{"video": "none.mp4"}\n')
    with pytest.raises(NotFoundError, match=r"line 1: .*none\.mp4: no such file"):
        pack_touch(data, data.parent / "out", datatypes="video+metainfo")
    os.truncate(data.parent / "wav/0.wav", 2**31)
    data.write_text('{"video": "wav/0.wav"}\n')
    with pytest.raises(FormatError, match=r"line 1: .*0\.wav: 2147483648 bytes are too many"):
        pack_touch(data, data.parent / "out", datatypes="video+metainfo")
    assert tree(data.parent / "out") == {}


def test_recordings_of_any_kind(data: Path) -> None:
    """As many samples as they last, and the rate in the metainfo."""
    write_wav(data.parent / "stereo.wav", 44100, rate=44100, channels=2)
    soundfile.write(data.parent / "x.flac", np.zeros(8000), 8000)
    data.write_text('{"wav": "stereo.wav"}\n{"wav": "wav/0.wav"}\n{"wav": "x.flac", "sample_rate": 8000}\n')
    pack_touch(data, data.parent / "out")
    shard = data.parent / "out/000000000"
    assert np.frombuffer((shard / "audio.idx").read_bytes(), "<i4", 3, 34).tolist() == [16000, 800, 16000]
    assert (shard / "metainfo.bin").read_bytes().count(b'"sample_rate": 16000') == 3


def test_memory_is_that_of_one_sample(tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / f"{i}.mp4").touch()
        os.truncate(tmp_path / f"{i}.mp4", 2**22)
    (tmp_path / "l.jsonl").write_text("".join(f'{{"video": "{i}.mp4"}}\n' for i in range(12)))
    imports = "from touchfs.bulk.pack.touchnet import pack_touch"
    grown = growth(tmp_path, imports, 'pack_touch("l.jsonl", "out", datatypes="video+metainfo")')
    assert (tmp_path / "out/000000000/video.bin").stat().st_size == 12 * 2**22
    assert grown < 3 * 2**12, "KiB"


def test_without_pyav(data: Path) -> None:
    """PCM is packed; anything else says what to install, and is not a bad sample."""
    soundfile.write(data.parent / "x.flac", np.zeros(8000), 16000)
    (data.parent / "other.jsonl").write_text('{"wav": "x.flac"}\n')
    program = """if True:
        import sys
        sys.modules["av"] = None
        from touchfs.cli.main import main
        for name in ("list", "other"):
            command = ["pack", "touchnet", name + ".jsonl", name, "--num-workers", "1", "--skip-bad"]
            sys.argv[1:] = command
            try:
                main()
            except SystemExit as end:
                print(end.code)
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=data.parent, capture_output=True, text=True, check=True)
    assert done.stdout == "list: 1 shard, 7 samples\n0\n1\n"
    assert done.stderr.count("\n") == 1
    assert "x.flac" in done.stderr
    assert "pip install 'touchfs-shards[media]'" in done.stderr


@pytest.mark.parametrize("name", ["data.list", "000000003", "skipped.jsonl"])
def test_an_output_that_is_taken(data: Path, name: str) -> None:
    output = data.parent / "out"
    output.mkdir()
    (output / name).write_bytes(b"kept")
    with pytest.raises(UsageError, match=f"already holds {name!r}: remove it, or choose another"):
        pack_touch(data, output)
    assert tree(output) == {name: b"kept"}


@pytest.mark.parametrize("name", ["my out", " out", "tab\tout", "line\nout", "über out"])
def test_an_output_with_spaces_is_listed_relative_to_itself(data: Path, name: str) -> None:
    output = data.parent / name
    pack_touch(data, output, samples_per_shard=4)
    assert (output / "data.list").read_text() == "000000000 audio+metainfo\n000000001 audio+metainfo\n"
    expected = audio_and_metainfo(data, str(output), 4, 16000)
    assert {path: made for path, made in tree(output).items() if path != "data.list"} == {
        path: made for path, made in expected.items() if path != "data.list"
    }
    assert find_shards(str(output)) == [str(output / f"{number:09d}") for number in range(2)]


def test_a_list_relative_to_itself_is_no_other_directorys(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_touch(data, tmp_path / "one out")
    pack_touch(data, tmp_path / "two", samples_per_shard=1)
    monkeypatch.chdir(tmp_path / "two")
    assert find_shards("../one out/data.list") == [os.path.abspath("../one out/000000000")]


def test_outputs_that_cannot_be(data: Path) -> None:
    with pytest.raises(UsageError, match="the output is empty"):
        pack_touch(data, "")
    with pytest.raises(UsageError, match="Not a directory"):
        pack_touch(data, data)
    with pytest.raises(UsageError, match="Not a directory"):
        pack_touch(data, data / "below")
    with pytest.raises(UsageError, match="positive"):
        pack_touch(data, data.parent / "out", samples_per_shard=0)
    with pytest.raises(UsageError, match="cannot make audio\\+video: choose from audio\\+metainfo, metainfo"):
        pack_touch(data, data.parent / "out", datatypes="audio+video")
    with pytest.raises(UsageError, match="only for texttoken"):
        pack_touch(data, data.parent / "out", vocab_size=7)
    with pytest.raises(NotFoundError, match="no such file"):
        pack_touch(data.parent / "none.jsonl", data.parent / "out")
    assert sorted(os.listdir(data.parent)) == ["list.jsonl", "wav"]
