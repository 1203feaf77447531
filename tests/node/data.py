"""Small datasets on disk, made once, when a test first asks."""

from __future__ import annotations

import atexit
import gzip
import json
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from interleaved_tars import WdsSample, make_wds_tar
from touchnet import write_speech

from touchfs.containers.shar.write.writer import SharWriter
from touchfs.interleaved import InterleavedWebdatasetReader

RATE = 16000
# Segments of each recording, shard by shard.
SEGMENTS = [[2, 0, 3], [1], [4, 2]]


@cache
def place() -> Path:
    directory = tempfile.mkdtemp(prefix="touchfs-test-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


def pcm(seed: int, length: int = 800) -> bytes:
    return np.random.default_rng(seed).integers(-999, 999, length, np.int16).tobytes()


@cache
def speech() -> Path:
    """Three TouchNet shards: 6 recordings with 12 segments, of 10 ms each and as long a pause after it."""
    for number, counts in enumerate(SEGMENTS):
        samples = []
        for i, count in enumerate(counts):
            told = [{"start": j / 50, "end": j / 50 + 0.01, "txt": f"text {j}"} for j in range(count)]
            metainfo = {"key": f"s{number}/r{i}", "sample_rate": RATE, "txt": "all", "info": {"segments": told}}
            samples.append((metainfo, pcm(10 * number + i, 1600)))
        write_speech(place() / "speech" / f"{number:09d}", samples)
    return place() / "speech"


@cache
def lines(count: int = 5) -> Path:
    """JSON lines, a blank one among them; beside them the same compressed."""
    path = place() / f"lines{count}.jsonl"
    text = b"".join(json.dumps({"id": f"k{i}", "value": i}).encode() + b"\n" * (1 + (i == 1)) for i in range(count))
    path.write_bytes(text)
    Path(f"{path}.gz").write_bytes(gzip.compress(text))
    return path


@cache
def interleaved_tars() -> Path:
    """Two tars of interleaved samples: three of one text each, and one."""
    for shard, count in enumerate([3, 1]):
        samples = [WdsSample(f"k{shard}{i}", [f"text {i}"], [None]) for i in range(count)]
        make_wds_tar(place() / f"interleaved/{shard}.tar", samples)
    return place() / "interleaved"


def interleaved_reader() -> InterleavedWebdatasetReader:
    """A reader of these tars, whose batches have one sample each."""
    return InterleavedWebdatasetReader(str(interleaved_tars()), max_batch_bytes=1)


def shar_directory(compressed: bool = False) -> Path:
    return _shar_directory(compressed)


@cache  # without a default: it would be another key than the same value, and the files would be written again
def _shar_directory(compressed: bool) -> Path:
    """Seven cuts in three shards, with recordings, arrays and texts; of the arrays some are missing."""
    directory = place() / f"shar-{compressed}"
    fields = {"recording": "wav", "embedding": "numpy", "lang": "jsonl"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with SharWriter(directory, fields, shard_size=3, compress_jsonl=compressed) as writer:
            for i in range(7):
                values = {
                    "recording": _wav(i),
                    "embedding": np.arange(i) if i % 3 else None,
                    "lang": "en" if i % 2 else "zh",
                }
                writer.write({"id": f"cut-{i}"}, values)
    return directory


def shar_fields(compressed: bool = False, *names: str) -> dict[str, list[Path]]:
    """The files of some fields."""
    directory = shar_directory(compressed)
    patterns = {"cuts": "cuts.*.jsonl*", "recording": "recording.*.tar", "lang": "lang.*.jsonl*"}
    return {
        name: sorted(path for path in directory.glob(patterns[name]) if path.suffix != ".idx")
        for name in ("cuts", *names)
    }


def _wav(seed: int) -> bytes:
    from touchfs.format.wav import build_header

    data = pcm(seed)
    return build_header(len(data), RATE) + data
