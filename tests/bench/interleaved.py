"""The job of NeMo Curator's documentation: read interleaved samples, drop images by their aspect ratio, and write the
rest; from tars and Parquet to either, beside the straightforward loop: `tarfile`, Pillow, which decodes each frame and
encodes it again, and pandas' Parquet. The set is like MINT-1T's: a TIFF of JPEG frames and a JSON for each document.
"""

import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
from harness import add, at_least, at_most, interleaved, report, run
from PIL import Image

sys.path.append(str(Path(__file__).parent.parent))
from interleaved_tars import WdsSample, make_tiff, make_wds_tar

from touchfs.interleaved import (
    InterleavedFilter,
    InterleavedParquetReader,
    InterleavedParquetWriter,
    InterleavedWebdatasetReader,
    InterleavedWebdatasetWriter,
)

SHARDS, DOCUMENTS, ROUNDS = 2, 56, 3
# About 480 kB a frame, as in MINT-1T. One of four is too wide.
SIZES = ((600, 760), (760, 600), (520, 820), (1100, 400))
MOST = 2.0
KINDS = ("WDS", "Parquet")
READERS: dict[str, Callable[..., Any]] = {"WDS": InterleavedWebdatasetReader, "Parquet": InterleavedParquetReader}
WRITERS: dict[str, Callable[..., Any]] = {"WDS": InterleavedWebdatasetWriter, "Parquet": InterleavedParquetWriter}


def make_set(place: Path) -> None:
    for shard in range(SHARDS):
        make_wds_tar(place / f"{shard:05d}.tar", (_document(shard * DOCUMENTS + i) for i in range(DOCUMENTS)))


def _document(number: int) -> WdsSample:
    key = f"{number:032x}"
    frames = 1 + number % 5
    texts = [text for i in range(frames) for text in (f"Page {i} of {number}. " * 40, None)]
    images = [token for i in range(frames) for token in (None, f"page_{i}_image_{number}")]
    tiff = make_tiff([SIZES[(number + i) % 4] for i in range(frames)], "jpeg", seed=10 * number)
    return WdsSample(key, texts, images, {f"{key}.tiff": tiff}, {"url": f"https://example.org/{number}.pdf"})


def ours(source: str, target: str, data: Path, out: Path) -> None:
    reader = READERS[source](str(data))
    (reader | InterleavedFilter(f"aspect_ratio < {MOST:g}") | WRITERS[target](str(out))).run()


def theirs(source: str, target: str, data: Path, out: Path) -> None:
    out.mkdir()
    read = {"WDS": _rows_of_tar, "Parquet": _rows_of_parquet}[source]
    write = {"WDS": _write_tar, "Parquet": _write_parquet}[target]
    for path in sorted(data.iterdir()):
        write(list(read(path)), out / path.stem)


def _rows_of_tar(path: Path) -> Iterator[dict[str, Any]]:
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            if member.name.endswith(".json"):
                yield from _rows_of_document(tar, member)


def _rows_of_document(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[dict[str, Any]]:
    key = Path(member.name).stem
    document = json.load(_member(tar, member.name))
    image = Image.open(_member(tar, f"{key}.tiff"))
    yield {"sample_id": key, "position": -1, "modality": "metadata", "url": document["url"]}
    frame = 0
    for position, (text, token) in enumerate(zip(document["texts"], document["images"], strict=True)):
        if text is not None:
            yield {"sample_id": key, "position": position, "modality": "text", "text_content": text}
        if token is not None:
            image.seek(frame)
            frame += 1
            if image.width / image.height < MOST:
                yield _image_row(key, position, image)


def _member(tar: tarfile.TarFile, name: str) -> io.BytesIO:
    file = tar.extractfile(name)
    assert file is not None
    return io.BytesIO(file.read())


def _image_row(key: str, position: int, image: Image.Image) -> dict[str, Any]:
    data = io.BytesIO()
    image.save(data, "TIFF", compression=image.info.get("compression"))
    row = {"sample_id": key, "position": position, "modality": "image", "content_type": "image/tiff"}
    return row | {"binary_content": data.getvalue()}


def _rows_of_parquet(path: Path) -> Iterator[dict[str, Any]]:
    for row in pq.read_table(path).to_pylist():
        if row["modality"] == "image":
            size = Image.open(io.BytesIO(row["binary_content"])).size
            if size[0] / size[1] >= MOST:
                continue
        yield row


def _write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    pd.DataFrame(rows).to_parquet(path.with_suffix(".parquet"), index=False)


def _write_tar(rows: list[dict[str, Any]], path: Path) -> None:
    with tarfile.open(path.with_suffix(".tar"), "w") as tar:
        for key, group in pd.DataFrame(rows).groupby("sample_id", sort=False):
            last = int(group["position"].max())
            document: dict[str, Any] = {"texts": [None] * (last + 1), "images": [None] * (last + 1)}
            for row in group.to_dict("records"):
                if row["modality"] == "metadata":
                    document["url"] = row["url"]
                elif row["modality"] == "text":
                    document["texts"][row["position"]] = row["text_content"]
                else:
                    name = f"{key}.{row['position']}.tiff"
                    document["images"][row["position"]] = name
                    add(tar, name, row["binary_content"])
            add(tar, f"{key}.json", json.dumps(document).encode())


def seconds(job: Callable[[Path], None], out: Path) -> float:
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    begin = time.perf_counter()
    job(out)
    return time.perf_counter() - begin


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="touchfs-bench-") as directory:
        place = Path(directory)
        make_set(place / "WDS")
        (InterleavedWebdatasetReader(str(place / "WDS")) | InterleavedParquetWriter(str(place / "Parquet"))).run()
        size = sum(path.stat().st_size for path in (place / "WDS").iterdir())
        jobs: dict[str, Callable[[], float]] = {}
        for source, target in product(KINDS, KINDS):
            for name, job in (("touchfs", ours), ("loop", theirs)):
                work = partial(job, source, target, place / source)
                jobs[f"{name} {source}→{target}"] = partial(seconds, work, place / "out")
        found = interleaved(jobs, ROUNDS)
    rows = []
    for source, target in product(KINDS, KINDS):
        mine, loop = found[f"touchfs {source}→{target}"], found[f"loop {source}→{target}"]
        wanted = at_least(loop / mine, 4, "×") if source == "WDS" else ""
        rows.append((f"{source}→{target}", f"{mine:.2f} s, the loop {loop:.2f} s: {loop / mine:.1f}×", wanted))
    ratio = found["touchfs WDS→WDS"] / found["touchfs Parquet→Parquet"]
    rows.append(("WDS→WDS beside Parquet→Parquet", f"{ratio:.2f}×", at_most(ratio, 1.5, "×")))
    report(f"interleaved: {SHARDS * DOCUMENTS} documents, {size / 1e6:.0f} MB, images below {MOST:g}:1 kept", rows)


if __name__ == "__main__":
    run(main)
