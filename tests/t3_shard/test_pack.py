import json
import os
import struct
import wave
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import soundfile

from touchfs.errors import FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.write.pack import PackReport, pack_touch


def tree(path: Path) -> dict[str, bytes]:
    return {str(found.relative_to(path)): found.read_bytes() for found in path.rglob("*") if found.is_file()}


def write_wav(path: Path, samples: int, rate: int = 16000, channels: int = 1, width: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as writer:
        writer.setparams((channels, width, rate, 0, "NONE", ""))
        writer.writeframes(np.random.default_rng(samples).bytes(samples * channels * width))


def reference(jsonl: Path, output: str, samples_per_shard: int, rate: int) -> dict[str, bytes]:
    """What TouchNet's make_data writes, restated from its documentation and layout."""
    with open(jsonl, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    files = {"data.list": b""}
    for ordinal, start in enumerate(range(0, len(lines), samples_per_shard)):
        bins: dict[str, list[bytes]] = {"audio": [], "metainfo": []}
        for line in lines[start : start + samples_per_shard]:
            if line:
                described = json.loads(line)
                path = Path(described["wav"])
                data, _ = soundfile.read(path if path.exists() else jsonl.parent / path, dtype="int16")
                described["sample_rate"] = rate
                bins["audio"].append(data.tobytes())
                bins["metainfo"].append(json.dumps(described, ensure_ascii=False).encode())
        files["data.list"] += f"{output}/{ordinal:09d} audio+metainfo\n".encode()
        for (name, samples), (code, width) in zip(bins.items(), [(3, 2), (1, 1)], strict=True):
            index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(samples), len(samples) + 1)
            index += b"".join(struct.pack("<i", len(sample) // width) for sample in samples)
            index += b"".join(struct.pack("<q", len(b"".join(samples[:i]))) for i in range(len(samples)))
            index += b"".join(struct.pack("<q", i) for i in range(len(samples) + 1))
            files[f"{ordinal:09d}/{name}.bin"] = b"".join(samples)
            files[f"{ordinal:09d}/{name}.idx"] = index
    return files


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, get_context("forkserver")) as executor:
        yield executor


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
    expected = reference(data, str(output), samples_per_shard, 16000)
    assert tree(output) == expected
    assert report == PackReport(expected["data.list"].count(b"\n"), 7, 2 * (800 + 33 + 1 + 5000 + 2 + 100))
    assert told[-1] == (8, 8)
    assert len(told) == report.shards


def test_in_parallel(data: Path, processes: Executor) -> None:
    report = pack_touch(data, data.parent / "out", samples_per_shard=2, executor=processes)
    assert tree(data.parent / "out") == reference(data, str(data.parent / "out"), 2, 16000)
    assert report.samples == 7


@pytest.mark.parametrize("parallel", [False, True])
def test_paths_as_typed(data: Path, monkeypatch: pytest.MonkeyPatch, processes: Executor, parallel: bool) -> None:
    executor = processes if parallel else None  # which run in another directory
    monkeypatch.chdir(data.parent)
    write_wav(Path("elsewhere/wav/0.wav"), 9)
    pack_touch("list.jsonl", "./out/", samples_per_shard=5, executor=executor)
    assert tree(Path("out")) == reference(data, "./out/", 5, 16000)
    assert Path("out/data.list").read_text().splitlines()[0] == "./out//000000000 audio+metainfo"
    # The current directory comes first, as in TouchNet.
    monkeypatch.chdir(data.parent / "elsewhere")
    pack_touch("../list.jsonl", "out", samples_per_shard=1, executor=executor)
    assert len(Path("out/000000000/audio.bin").read_bytes()) == 2 * 9


def test_another_rate(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", 99, rate=8000)
    (tmp_path / "l.jsonl").write_text('{"wav": "a.wav"}\n')
    pack_touch(tmp_path / "l.jsonl", tmp_path / "out", rate=8000)
    assert tree(tmp_path / "out") == reference(tmp_path / "l.jsonl", str(tmp_path / "out"), 1000, 8000)


def test_nothing_to_pack(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").touch()
    assert pack_touch(tmp_path / "l.jsonl", tmp_path / "out") == PackReport(0, 0, 0)
    assert tree(tmp_path / "out") == {"data.list": b""}


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        (b'{"wav": "none.wav"}', NotFoundError, ["none.wav", "no such file"]),
        (b'{"wav": "."}', SourceError, ["Is a directory"]),
        (b'{"wav": "a\\u0000b"}', SourceError, ["cannot be read"]),
        (b'{"wav": "rate.wav"}', FormatError, ["rate.wav", "1 channels, 44100 Hz", "expected a WAV", "16000 Hz"]),
        (b'{"wav": "stereo.wav"}', FormatError, ["stereo.wav", "2 channels", "1 channel,"]),
        (b'{"wav": "bits.wav"}', FormatError, ["bits.wav", "24 bits", "16 bits"]),
        (b'{"wav": "float.wav"}', FormatError, ["float.wav", "codec 0x3"]),
        (b'{"wav": "flac.wav"}', FormatError, ["flac.wav", "not a WAV", "expected a WAV"]),
        (b'{"wav": "cut.wav"}', FormatError, ["cut.wav", "cut short", "(at byte 36)"]),
        (b'{"wav": 3}', FormatError, ["expected a JSON object"]),
        (b'["wav"]', FormatError, ["expected a JSON object"]),
        (b'{"key": 3', FormatError, ["not JSON"]),
        (b"[" * 100_000, FormatError, ["not JSON"]),
        (b'{"wav": "wav/0.wav", "txt": "\\ud800"}', FormatError, ["UTF-8"]),
        (b'{"wav": "wav/0.wav", "txt": "\xff"}', FormatError, ["UTF-8"]),
    ],
    ids=lambda value: None if isinstance(value, type) else str(value)[:20],
)
def test_a_sample_that_cannot_be_packed(
    data: Path, line: bytes, kind: type[TouchfsError], words: list[str], processes: Executor
) -> None:
    folder = data.parent
    write_wav(folder / "rate.wav", 10, rate=44100)
    write_wav(folder / "stereo.wav", 10, channels=2)
    write_wav(folder / "bits.wav", 10, width=3)
    soundfile.write(folder / "float.wav", np.zeros(10), 16000, subtype="FLOAT")
    soundfile.write(folder / "flac.wav", np.zeros(10), 16000, format="FLAC")
    (folder / "cut.wav").write_bytes((folder / "wav" / "0.wav").read_bytes()[:-1])
    data.write_bytes(data.read_bytes() + b"\n" + line + b"\n")
    (folder / "out").mkdir()
    (folder / "out" / "notes").write_bytes(b"of the user")
    for executor in (None, processes):
        with pytest.raises(kind) as caught:
            pack_touch(data, folder / "out", samples_per_shard=2, executor=executor)
        message = str(caught.value)
        assert message.startswith(f"{data}: line 9: ")
        assert "\n" not in message
        assert all(word in message for word in words), message
        assert tree(folder / "out") == {"notes": b"of the user"}


@pytest.mark.parametrize("name", ["data.list", "000000003"])
def test_an_output_that_is_taken(data: Path, name: str) -> None:
    output = data.parent / "out"
    output.mkdir()
    (output / name).write_bytes(b"kept")
    with pytest.raises(UsageError, match=f"already holds {name}: remove it, or choose another"):
        pack_touch(data, output)
    assert tree(output) == {name: b"kept"}


def test_outputs_that_cannot_be(data: Path) -> None:
    with pytest.raises(UsageError, match="spaces"):
        pack_touch(data, data.parent / "my out")
    with pytest.raises(UsageError, match="Not a directory"):
        pack_touch(data, data)
    with pytest.raises(UsageError, match="Not a directory"):
        pack_touch(data, data / "below")
    with pytest.raises(UsageError, match="positive"):
        pack_touch(data, data.parent / "out", samples_per_shard=0)
    with pytest.raises(NotFoundError, match="no such file"):
        pack_touch(data.parent / "none.jsonl", data.parent / "out")
    assert sorted(os.listdir(data.parent)) == ["list.jsonl", "wav"]
