"""Tars of interleaved samples, as MINT-1T's and NeMo Curator's, and the images in them.

An image is never of one colour, so two of different seeds differ, and what is compressed twice is not equal.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tars import add

_PILLOW = {"jpg": "JPEG", "tif": "TIFF"}
_COMPRESS = {".gz": gzip.compress, ".tgz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@dataclass(frozen=True)
class WdsSample:
    """A sample of a tar: the fields of its JSON member `<key><suffix>`, and its other members by their full names.

    Each of `texts` and `images` has a place for each item of the sample, None where the other one has it.
    """

    key: str
    texts: Any = ()
    images: Any = ()
    members: Mapping[str, bytes] = field(default_factory=dict)
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    suffix: str = ".json"
    fields: tuple[str, str] = ("texts", "images")

    def document(self) -> bytes:
        """The JSON member."""
        lists = dict(zip(self.fields, (self.texts, self.images), strict=True))
        as_lists = {name: list(value) if isinstance(value, tuple) else value for name, value in lists.items()}
        return json.dumps(as_lists | dict(self.passthrough), ensure_ascii=False).encode()

    def files(self) -> Iterator[tuple[str, bytes]]:
        """All members, in the order of MINT-1T: the JSON first."""
        yield self.key + self.suffix, self.document()
        yield from self.members.items()


def make_wds_tar(
    path: Path,
    samples: Iterable[WdsSample | tuple[str, bytes]],
    *,
    json_first: bool = True,
    format: int = tarfile.GNU_FORMAT,
) -> Path:
    """Write a tar of samples and of single members, and the directories above it.

    It is compressed as the name says: `.gz`, `.tgz`, `.bz2`, `.xz` or `.zst`. With `json_first=False`, the images of a
    sample come before its JSON, as Curator writes them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as tar:
        for sample in samples:
            files = list(sample.files()) if isinstance(sample, WdsSample) else [sample]
            for name, data in files if json_first else [*files[1:], files[0]]:
                add(tar, name, data)
    path.write_bytes(compress(path.name, stream.getvalue()))
    return path


def compress(name: str, data: bytes) -> bytes:
    """Bytes compressed as a name's suffix says."""
    suffix = Path(name).suffix.lower()
    if suffix == ".zst":
        import zstandard

        return zstandard.compress(data)
    return _COMPRESS.get(suffix, bytes)(data)


def make_pixels(size: tuple[int, int] = (24, 16), seed: int = 0, mode: str = "RGB") -> Image.Image:
    """An image of noise over a gradient. `mode` is Pillow's: RGB, L, RGBA, 1, …"""
    width, height = size
    noise = np.random.default_rng(seed).integers(0, 96, (height, width, 3), dtype=np.uint8)
    slope = (np.arange(width, dtype=np.uint16) * 150 // max(width, 1)).astype(np.uint8)
    return Image.fromarray(noise + slope[None, :, None]).convert(mode)


def make_image(format: str, size: tuple[int, int] = (24, 16), seed: int = 0, **options: Any) -> bytes:
    """An image file. `format` is a key of `CONTENT_TYPES`. Options are those of `Image.save`."""
    stream = io.BytesIO()
    make_pixels(size, seed).save(stream, _PILLOW.get(format.lower(), format), **options)
    return stream.getvalue()


def make_tiff(
    frames: Sequence[tuple[int, int]] | int, compression: str | None = None, seed: int = 0, mode: str = "RGB"
) -> bytes:
    """A TIFF with a frame for each size, or with so many frames. `compression` is Pillow's: jpeg, tiff_lzw, …"""
    sizes = [(24 + number, 16) for number in range(frames)] if isinstance(frames, int) else list(frames)
    first, *others = [make_pixels(size, seed + number, mode) for number, size in enumerate(sizes)]
    stream = io.BytesIO()
    first.save(stream, "TIFF", save_all=True, append_images=others, compression=compression)
    return stream.getvalue()


def mint_sample(
    number: int, frames: int = 3, compression: str | None = "jpeg", size: tuple[int, int] = (24, 16)
) -> WdsSample:
    """A sample as in MINT-1T: texts and images in turn, all images in one TIFF, whose name no image token has."""
    key = f"{number:032x}"
    texts: list[str | None] = ["intro"]
    images: list[str | None] = [None]
    for frame in range(frames):
        texts += [None, f"text {frame} of {number}, 中文"]
        images += [f"page_{frame}_image_{number}", None]
    return WdsSample(
        key,
        texts,
        images,
        {f"{key}.tiff": make_tiff([(size[0] + frame, size[1]) for frame in range(frames)], compression, seed=number)},
        {
            "url": f"https://example.org/{number}.pdf",
            "pdf_name": f"{key}.pdf",
            "image_metadata": [{"height": size[1], "page": frame, "width": size[0] + frame} for frame in range(frames)],
            "language_id_whole_page_fasttext": {"en": 0.9},
            "bff_contained_ngram_count_before_dedupe": number,
        },
    )


def random_sample(key: str, seed: int) -> WdsSample:
    """A sample with any of: gaps, images of all formats by name, by stem or missing, TIFFs, and passthrough keys."""
    chance = random.Random(seed)
    texts: list[Any] = []
    images: list[Any] = []
    members: dict[str, bytes] = {}
    if chance.random() < 0.3:
        members[f"{key}.tiff"] = make_tiff(chance.randint(1, 4), chance.choice([None, "jpeg", "tiff_lzw"]), seed)
    for position in range(chance.randint(0, 6)):
        text = chance.choice(["", "a", "many words " * chance.randint(1, 30), "中文 ü", "\n\t\"'"])
        token: str | None = None
        if (kind := chance.random()) < 0.35:
            format = chance.choice(["jpg", "jpeg", "png", "gif", "webp", "bmp", "tif", "tiff"])
            token = f"{key}.{position}.{format}"
            members[token] = make_image(format, (chance.randint(1, 40), chance.randint(1, 40)), seed + position)
        elif kind < 0.5:
            token = f"page_{position}_image_{seed}"
        elif kind < 0.55:
            token = f"missing.{position}.png"
        texts.append(text if token is None and chance.random() < 0.8 else None)
        images.append(token)
    passthrough: dict[str, Any] = {}
    if chance.random() < 0.5:
        passthrough["url"] = f"https://example.org/{seed}"
    if chance.random() < 0.3:
        passthrough["score"] = chance.random()
    if chance.random() < 0.3:
        passthrough["tags"] = chance.choice([[], ["a", "b"], {"c": [1, None]}])
    return WdsSample(key, texts, images, members, passthrough)
