"""An independent writer of what TouchNet's make_data writes, restated from its documentation and layout."""

import json
import struct
import wave
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import soundfile

# datatypes: for each modality its dtype code and the bytes of an element
CODES = {"audio": (3, 2), "metainfo": (1, 1), "video": (1, 1)}


def tree(path: Path) -> dict[str, bytes]:
    return {str(found.relative_to(path)): found.read_bytes() for found in path.rglob("*") if found.is_file()}


def write_wav(path: Path, samples: int, rate: int = 16000, channels: int = 1, width: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as writer:
        writer.setparams((channels, width, rate, 0, "NONE", ""))
        writer.writeframes(np.random.default_rng(samples).bytes(samples * channels * width))


def index_of(code: int, width: int, samples: Sequence[bytes]) -> bytes:
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(samples), len(samples) + 1)
    index += b"".join(struct.pack("<i", len(sample) // width) for sample in samples)
    offset = 0
    for sample in samples:
        index += struct.pack("<q", offset)
        offset += len(sample)
    return index + b"".join(struct.pack("<q", i) for i in range(len(samples) + 1))


def shards(
    lines: Sequence[str],
    output: str,
    samples_per_shard: int,
    datatypes: str,
    make: Callable[[dict[str, object]], Mapping[str, bytes] | None],
    codes: Mapping[str, tuple[int, int]] = CODES,
) -> dict[str, bytes]:
    """All files under the output. `make` turns a line's object into the bytes of each modality, or None."""
    files = {"data.list": b""}
    for ordinal, start in enumerate(range(0, len(lines), samples_per_shard)):
        bins: dict[str, list[bytes]] = {name: [] for name in datatypes.split("+")}
        for line in lines[start : start + samples_per_shard]:
            if line.strip() and (made := make(json.loads(line))) is not None:
                for name, data in made.items():
                    bins[name].append(data)
        files["data.list"] += f"{output}/{ordinal:09d} {datatypes}\n".encode()
        for name, samples in bins.items():
            files[f"{ordinal:09d}/{name}.bin"] = b"".join(samples)
            files[f"{ordinal:09d}/{name}.idx"] = index_of(*codes[name], samples)
    return files


def audio_and_metainfo(jsonl: Path, output: str, samples_per_shard: int, rate: int) -> dict[str, bytes]:
    """Of WAV files that need no decoding."""

    def make(described: dict[str, object]) -> dict[str, bytes]:
        path = Path(str(described["wav"]))
        data, _ = soundfile.read(path if path.exists() else jsonl.parent / path, dtype="int16")
        described["sample_rate"] = rate
        return {"audio": data.tobytes(), "metainfo": json.dumps(described, ensure_ascii=False).encode()}

    with open(jsonl, encoding="utf-8") as file:
        return shards(file.readlines(), output, samples_per_shard, "audio+metainfo", make)
