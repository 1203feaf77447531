"""TouchDataset against a `tarfile` loop over the same waveforms, the WeNet way: KEY.txt, then KEY.wav, for each clip.

Two shards of 500 clips of 2-6 s at 16 kHz, in the page cache. All sides return equal arrays and equal texts, which is
checked before anything is timed. A round times every loop once, in turn; printed are medians over five rounds, and the
median of the ratios within each round.

    decode   waveforms as float32: WAV read by soundfile | int16 / 32768
    bytes    waveforms as int16:   WAV bytes without header | `get` as it is
    random   as bytes, in random order: the members looked up by name, after the tar was scanned | `get`
    window   a window of tokens as an array | `get` of a document as long
    by key   the same, where only the key is known: a dictionary of all members, made before | `find`, then `get`
"""

from __future__ import annotations

import io
import json
import os
import random
import statistics
import tarfile
import tempfile
import wave
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import soundfile
from harness import add, at_least, at_most, own_cache_and_state, report, run
from numpy.typing import NDArray

import touchfs
from touchfs import TouchDataset
from touchfs.containers.touchnet.layout.mmidx import build_index
from touchfs.containers.touchnet.writer import TouchNetWriter

SHARDS, CLIPS, RATE, ROUNDS = 2, 500, 16000, 5
DOCUMENTS, LENGTH, BATCH = 5000, 4096, 64
WAV_HEADER_SIZE = 44
# A process that has freed an array of this many bytes, as all do that train something, gets its arrays from memory that
# glibc keeps. In one that has not, page faults cost both sides about 45 µs a clip, and "decode" is 4.4x here, not 7.5x.
FREED_ONCE = 4 << 20

Sample = tuple[NDArray[Any], str]


def make(root: Path) -> list[Path]:
    """The shards in `root/touch`, and the paths of the same clips' tars."""
    rng = np.random.default_rng(0)
    (root / "touch").mkdir()
    tars = []
    for number in range(SHARDS):
        tars.append(root / f"{number}.tar")
        modalities: dict[str, np.dtype[Any]] = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}
        with TouchNetWriter(root / "touch" / f"{number:09d}", modalities) as shard, tarfile.open(tars[-1], "w") as tar:
            for clip in range(CLIPS):
                key, text = f"speaker{clip % 17:03d}-{number}-{clip:06d}", f"what clip {clip} of shard {number} says"
                pcm = rng.integers(-20000, 20000, int(rng.uniform(2, 6) * RATE), np.int16).astype("<i2").tobytes()
                metainfo = {"key": key, "wav": f"/data/{key}.wav", "txt": text, "sample_rate": RATE}
                shard.add({"audio": pcm, "metainfo": json.dumps(metainfo, ensure_ascii=False).encode()})
                file = io.BytesIO()
                with wave.open(file, "wb") as wav:
                    wav.setparams((1, 2, RATE, 0, "NONE", ""))
                    wav.writeframes(pcm)
                for name, data in ((f"{key}.txt", text.encode()), (f"{key}.wav", file.getvalue())):
                    add(tar, name, data)
    return tars


def tar_samples(tars: Iterable[Path], waveform: Callable[[bytes], NDArray[Any]]) -> Iterator[Sample]:
    for path in tars:
        with tarfile.open(path) as tar:
            text = ""
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                if member.name.endswith(".txt"):
                    text = file.read().decode()
                else:
                    yield waveform(file.read()), text


def decoded(wav: bytes) -> NDArray[Any]:
    array: NDArray[Any] = soundfile.read(io.BytesIO(wav), dtype="float32")[0]
    return array


def stripped(wav: bytes) -> NDArray[Any]:
    return np.frombuffer(wav, "<i2", offset=WAV_HEADER_SIZE)


def touch_samples(
    dataset: TouchDataset, *, decode: bool = False, order: Iterable[int] | None = None
) -> Iterator[Sample]:
    for i in range(len(dataset)) if order is None else order:
        text = dataset.metainfo(i)["txt"]
        waveform = dataset.get(i, "audio")
        if decode:
            waveform = waveform.astype(np.float32)
            waveform /= 32768
        yield waveform, text


def tar_at_random(members: list[tuple[tarfile.TarFile, str]], order: Iterable[int]) -> Iterator[Sample]:
    for i in order:
        tar, stem = members[i]
        text, wav = tar.extractfile(f"{stem}.txt"), tar.extractfile(f"{stem}.wav")
        assert text is not None and wav is not None
        yield stripped(wav.read()), text.read().decode()


def touch_by_key(dataset: TouchDataset, keys: list[str], order: Iterable[int]) -> Iterator[Sample]:
    for i in order:
        position = dataset.find(keys[i])
        yield dataset.get(position, "audio"), dataset.metainfo(position)["txt"]


def tar_by_key(tars: dict[str, tarfile.TarFile], keys: list[str], order: Iterable[int]) -> Iterator[Sample]:
    for i in order:
        yield from tar_at_random([(tars[keys[i]], keys[i])], [0])


def check_equal(one: Iterator[Sample], other: Iterator[Sample]) -> None:
    for (waveform, text), (expected, words) in zip(one, other, strict=True):
        assert text == words
        assert waveform.dtype == expected.dtype and np.array_equal(waveform, expected)


def seconds(samples: Iterator[Sample]) -> float:
    start = perf_counter()
    for _ in samples:
        pass
    return perf_counter() - start


def overhead(dataset: TouchDataset, shard: Path) -> tuple[float, float]:
    """Microseconds of one `get` of a whole clip, and of the `os.pread` of the same bytes."""
    places = [dataset.get_idx(i, "audio") for i in range(CLIPS)]
    descriptor = os.open(shard / "audio.bin", os.O_RDONLY)
    gets, preads = [], []
    for _ in range(ROUNDS * 4):
        start = perf_counter()
        for i in range(CLIPS):
            dataset.get(i, "audio")
        middle = perf_counter()
        for offset, length in places:
            os.pread(descriptor, 2 * length, offset)
        gets.append(middle - start)
        preads.append(perf_counter() - middle)
    os.close(descriptor)
    return min(gets) / CLIPS * 1e6, min(preads) / CLIPS * 1e6


def of_tokens(place: Path) -> list[tuple[float, float]]:
    """Microseconds of a window of tokens, and of `get` of a document of the same length, in random order, for each
    round. Windows are asked for in batches, as a DataLoader does.
    """
    place.mkdir()
    documents = np.full(DOCUMENTS, LENGTH)
    np.arange(DOCUMENTS * LENGTH, dtype="<i4").tofile(place / "corpus.bin")
    (place / "corpus.idx").write_bytes(build_index(np.dtype("<i4"), documents))
    windows, order = touchfs.open(place).tokens(LENGTH), random.Random(0).sample(range(DOCUMENTS), DOCUMENTS)
    arrays = windows.map(lambda window: window.array())
    batches = [order[first : first + BATCH] for first in range(0, DOCUMENTS, BATCH)]
    rounds = []
    with TouchDataset(place) as dataset:
        for i in order[:100]:
            assert np.array_equal(windows[i].array(), dataset.get(i, "tokens"))
        for _ in range(ROUNDS):
            start = perf_counter()
            for batch in batches:
                arrays.__getitems__(batch)
            middle = perf_counter()
            for i in order:
                dataset.get(i, "tokens")
            rounds.append(((middle - start) / DOCUMENTS * 1e6, (perf_counter() - middle) / DOCUMENTS * 1e6))
    return rounds


def main() -> None:
    np.empty(FREED_ONCE, np.uint8)
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        own_cache_and_state(Path(temporary))
        tars = make(Path(temporary))
        dataset = stack.enter_context(TouchDataset(Path(temporary) / "touch"))
        order = random.Random(0).sample(range(len(dataset)), len(dataset))
        opened = [stack.enter_context(tarfile.open(path)) for path in tars]
        members = [(tar, name[:-4]) for tar in opened for name in tar.getnames() if name.endswith(".txt")]
        keys, by_key = [key for _, key in members], {key: tar for tar, key in members}
        pairs: dict[str, tuple[Callable[[], Iterator[Sample]], Callable[[], Iterator[Sample]]]] = {
            "decode": (lambda: tar_samples(tars, decoded), lambda: touch_samples(dataset, decode=True)),
            "bytes": (lambda: tar_samples(tars, stripped), lambda: touch_samples(dataset)),
            "random": (lambda: tar_at_random(members, order), lambda: touch_samples(dataset, order=order)),
            "by key": (lambda: tar_by_key(by_key, keys, order), lambda: touch_by_key(dataset, keys, order)),
        }
        for tar, touch in pairs.values():
            check_equal(touch(), tar())
        rounds = [
            {name: (seconds(tar()), seconds(touch())) for name, (tar, touch) in pairs.items()} for _ in range(ROUNDS)
        ]
        rows = []
        for name, wanted in (
            ("decode", 5),
            ("bytes", 1.5),
            ("random", 0),
            ("by key", 0),
        ):
            tar_us, touch_us = (
                statistics.median(r[name][side] for r in rounds) / len(dataset) * 1e6 for side in (0, 1)
            )
            ratio = statistics.median(r[name][0] / r[name][1] for r in rounds)
            told = f"tarfile {tar_us:.1f} µs a clip, TouchDataset {touch_us:.1f} µs: {ratio:.1f}x"
            rows.append((name, told, at_least(ratio, wanted, "x") if wanted else ""))
        of_windows = of_tokens(Path(temporary) / "tokens")
        window, document = (statistics.median(each[side] for each in of_windows) for side in (0, 1))
        ratio = statistics.median(document / window for window, document in of_windows)
        told = f"{window:.1f} µs, TouchDataset.get of a document of that length {document:.1f} µs: {ratio:.1f}x"
        rows.append(("window", told, at_least(ratio, 0.9, "x")))
        get, pread = overhead(dataset, Path(temporary) / "touch" / "000000000")
        rows.append(
            (
                "get",
                f"{get:.1f} µs, os.pread of its bytes {pread:.1f} µs: {get - pread:+.1f} µs",
                at_most(get - pread, 4, " µs more"),
            )
        )
        report("All clips through TouchDataset and through tarfile", rows)


if __name__ == "__main__":
    run(main)
