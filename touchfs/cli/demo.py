"""touchfs demo"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import struct
import wave
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import click
import numpy as np

from touchfs.bulk.data_list import check_output
from touchfs.cli.terminal import say
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.extras import install_hint
from touchfs.posix.atomic import atomic_directory
from touchfs.write import TarShardsWriter, TarWriter

_PICTURES, _PICTURES_PER_TAR, _SIDE = 60, 20, 32
_SHAPES = ("circle", "square")
_COLORS = {"red": b"\xe0\x20\x20", "green": b"\x20\xa0\x40", "blue": b"\x20\x60\xe0"}
_WHITE = b"\xff\xff\xff"
_RATE = 8000
# Each word is a tone of this length.
_WORD_SECONDS = 0.25
_TALKS = {
    "monday": ("Good morning.", "This is a talk about shards."),
    "tuesday": ("Hello again.", "Today we read one sentence of it.", "Goodbye."),
}


class _Sentence(NamedTuple):
    start: float
    end: float
    text: str


@click.command("demo")
@click.argument("directory", metavar="DIR", type=click.Path())
def command(directory: str) -> None:
    """Write small datasets to try touchfs with.

    DIR gets a dataset of each kind: pictures for WebDataset, recordings with their sentences, tables. DIR must not
    exist, or be empty. The next commands to type are printed.

    \b
    Example:
      touchfs demo demo
      touchfs ls demo/webdataset:shards/train-000000
    """
    check_output(directory)
    with suppress(OSError):
        os.rmdir(directory)  # an empty one; any other is an error of `atomic_directory`
    has_tables = importlib.util.find_spec("pyarrow") is not None
    with atomic_directory(directory) as place:
        _write_pictures(place / "webdataset")
        _write_whisper(place / "whisper")
        _write_list(place / "nemo")
        _write_touchnet(place / "touchnet")
        if has_tables:
            _write_tables(place)
        made = ", ".join(sorted(os.listdir(place)))
    say(f"{directory}: {made}")
    if not has_tables:
        say(f"{install_hint('arrow')}, and Parquet and Arrow are written, too")
    say("Type next:")
    for line in _next_commands(directory, has_tables):
        say(f"  {line}")


def _next_commands(directory: str, has_tables: bool) -> Iterator[str]:
    """Commands that show what was written, for a shell in the working directory."""

    def dataset(path: str) -> str:
        return quote(os.path.join("." if directory.startswith("-") else "", directory, path))

    pictures = dataset("webdataset")
    if importlib.util.find_spec("pyfuse3") is None:
        yield f"touchfs ls {pictures}:shards/train-000000"
        yield f"touchfs cat {pictures}:by-key/sample000037.json"
    else:
        yield f"touchfs mount {pictures} mnt"
        yield "ls mnt mnt/shards/train-000000"
        yield "cat mnt/by-key/sample000037.json"
        yield "touchfs umount mnt"
    yield f"touchfs cat {dataset('whisper')}:segments/talks/monday/0001.txt"
    yield f"touchfs ls --audio-root {dataset('nemo')} {dataset('nemo')}:segments"
    if has_tables:
        yield f"touchfs ls {dataset('parquet')}:by-label"


def _write_pictures(place: Path) -> None:
    """Tars as webdataset's TarWriter writes them."""
    place.mkdir()
    with TarShardsWriter(place / "train-%06d.tar", samples_per_shard=_PICTURES_PER_TAR) as tars:
        for number in range(_PICTURES):
            label = number % len(_SHAPES)
            color = list(_COLORS)[number % len(_COLORS)]
            caption = f"a {color} {_SHAPES[label]}"
            about = {"caption": caption, "label": _SHAPES[label], "score": number * 7 % 20 / 20}
            picture = _png(_SHAPES[label], _COLORS[color], radius=4 + number % 12)
            fields = {"cls": str(label), "json": json.dumps(about)}
            tars.add(f"sample{number:06d}", {"png": picture} | {name: text.encode() for name, text in fields.items()})


def _png(shape: str, color: bytes, radius: int) -> bytes:
    """A shape on white. It is stored without compression, so that every zlib writes the same bytes."""
    offsets = range(-_SIDE // 2, _SIDE // 2)
    rows = (b"".join(color if _is_inside(shape, x, y, radius) else _WHITE for x in offsets) for y in offsets)
    header = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)  # 8 bits of red, green and blue
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 0)
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def _is_inside(shape: str, x: int, y: int, radius: int) -> bool:
    return x * x + y * y <= radius * radius if shape == "circle" else max(abs(x), abs(y)) <= radius


def _sentences(talk: str) -> list[_Sentence]:
    found, end = list[_Sentence](), 0.0
    for text in _TALKS[talk]:
        start, end = end, end + len(text.split()) * _WORD_SECONDS
        found.append(_Sentence(start, end, text))
    return found


def _sound(talk: str) -> bytes:
    """The recording of a talk, as 16-bit PCM: a triangle wave for each word, the lower the longer the word is."""
    at = np.arange(int(_RATE * _WORD_SECONDS))
    tones = []
    for word in " ".join(_TALKS[talk]).split():
        period = 16 + 2 * len(word)
        tones.append((abs(at % period - period // 2) * 400 - 200 * (period // 2)).astype("<i2").tobytes())
    return b"".join(tones)


def _wav(talk: str) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, _RATE, 0, "NONE", ""))
        writer.writeframes(_sound(talk))
    return file.getvalue()


def _write_whisper(place: Path) -> None:
    """A tar of recordings, each with the JSON that Whisper writes of it."""
    place.mkdir()
    with TarWriter(place / "talks.tar") as tar:
        for talk in _TALKS:
            segments = [{"id": number, **each._asdict()} for number, each in enumerate(_sentences(talk))]
            text = {"text": " ".join(_TALKS[talk]), "segments": segments, "language": "en"}
            tar.add(talk, {"wav": _wav(talk), "json": json.dumps(text).encode()})


def _write_list(place: Path) -> None:
    """JSON lines, each of which names a recording and a sentence of it, as NeMo has them."""
    (place / "wav").mkdir(parents=True)
    lines = []
    for talk in _TALKS:
        (place / f"wav/{talk}.wav").write_bytes(_wav(talk))
        for start, end, text in _sentences(talk):
            line = {"audio_filepath": f"wav/{talk}.wav", "offset": start, "duration": end - start, "text": text}
            lines.append(json.dumps(line) + "\n")
    (place / "talks.jsonl").write_text("".join(lines))


def _write_touchnet(place: Path) -> None:
    """A .bin and .idx of recordings, and of what is known of them."""
    with TouchNetWriter(place, {"audio": np.dtype("<i2"), "metainfo": np.dtype(np.uint8)}) as shard:
        for talk in _TALKS:
            segments = [{"start": start, "end": end, "txt": text} for start, end, text in _sentences(talk)]
            about = {"key": talk, "sample_rate": _RATE, "txt": " ".join(_TALKS[talk]), "info": {"segments": segments}}
            shard.add({"audio": _sound(talk), "metainfo": json.dumps(about).encode()})


def _write_tables(place: Path) -> None:
    """The pictures as rows of a Parquet file and of an Arrow file."""
    from touchfs.bulk.tables.job import pack_table
    from touchfs.bulk.tables.writers import ARROW, PARQUET, TableSettings
    from touchfs.features import ClassLabel, Features, Image, Value

    columns = {"image": Image(), "label": ClassLabel(names=_SHAPES), "caption": Value("string")}
    for kind in (ARROW, PARQUET):
        pack_table(str(place / "webdataset"), str(place / kind), TableSettings(kind), features=Features(columns))
        (place / f"{kind}.lock").unlink()  # for others who write this table: nobody does
