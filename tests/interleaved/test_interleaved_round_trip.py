"""Samples go from tars to Parquet files and back: rows, order, gaps, bytes and columns that are passed through stay."""

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from interleaved_tars import WdsSample, make_image, make_tiff, make_wds_tar, mint_sample
from written_items import PNG, image, item_batch, metadata, text

from touchfs.interleaved.items.schema import align_table
from touchfs.interleaved.layout.columns import RESERVED_COLUMNS
from touchfs.interleaved.read.parquet import InterleavedParquetReader
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader
from touchfs.interleaved.write import InterleavedParquetWriter, InterleavedWebdatasetWriter

PER_ITEM = {"per_image_fields": ("width",), "per_text_fields": ("lang",)}
# Where an item comes from changes, and an error is that of the last place.
LEFT_OUT = ("source_ref", "materialize_error")


def read(path: str) -> pa.Table:
    if path.endswith(".tar"):
        batches = list(InterleavedWebdatasetReader(path, materialize_on_read=True, **PER_ITEM))
    else:
        batches = list(InterleavedParquetReader(path))
    return pa.concat_tables([batch.table for batch in batches], promote_options="permissive")


def convert(path: str, out: Path, **options) -> str:
    """From a tar to a Parquet file, or back, batch by batch."""
    if path.endswith(".tar"):
        reader, writer = InterleavedWebdatasetReader(path, max_batch_bytes=3000, **PER_ITEM), InterleavedParquetWriter
    else:
        reader, writer = InterleavedParquetReader(path, max_batch_bytes=3000), InterleavedWebdatasetWriter
    with writer(out, on_materialize_error="warn").writing([path]) as shard:
        for batch in reader:
            shard.append(batch)
    return shard.path


def rows(table: pa.Table) -> list[dict]:
    """The rows, without what a tar cannot hold: columns of nulls, and the type of an image that is missing."""
    kept = [name for name in table.column_names if name not in LEFT_OUT]
    kept = [name for name in kept if name in RESERVED_COLUMNS or table[name].null_count < table.num_rows]
    found = table.select(sorted(kept)).to_pylist()
    for row in found:
        if row["modality"] == "image" and row["binary_content"] is None:
            row["content_type"] = None
    return found


names = st.text(st.sampled_from("ab.-_/ %+é中"), min_size=1, max_size=8)
texts = st.text(max_size=20)
# JSON has neither NaN nor infinities: the former becomes null, the latter text.
numbers = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | numbers | texts
json_values |= st.lists(st.integers(), max_size=3) | st.dictionaries(texts, numbers, max_size=2)
IMAGES = {kind: make_image(kind, (5, 4)) for kind in ("jpg", "png", "webp", "gif", "bmp", "tiff")}
TIFFS = [make_tiff(frames, compression) for frames in (1, 3) for compression in ("jpeg", "tiff_lzw")]


@st.composite
def tar_samples(draw) -> list[WdsSample]:
    """Samples with gaps, images by name, frames by number, images that are missing, and fields of any type."""
    samples = []
    for number, sample_id in enumerate(draw(st.lists(names, max_size=4, unique=True))):
        key = f"{number}"
        members, texts_, images = {}, [], []
        if draw(st.booleans()):
            members[f"{key}.tiff"] = draw(st.sampled_from(TIFFS))
        for position in range(draw(st.integers(0, 5))):
            kind = draw(st.sampled_from(["gap", "text", "image", "frame", "missing"]))
            texts_.append(draw(texts) if kind == "text" else None)
            token = {"frame": f"page_{position}", "missing": f"{key}.{position}.png"}.get(kind)
            if kind == "image":
                extension = draw(st.sampled_from(list(IMAGES)))
                token = f"{key}.{position}.{draw(st.sampled_from([extension, extension.upper()]))}"
                members[token] = IMAGES[extension]
            images.append(token)
        passthrough = {"sample_id": sample_id} | draw(st.dictionaries(st.sampled_from("xyz"), json_values))
        passthrough["width"] = draw(st.lists(st.integers(0, 9), min_size=6, max_size=6))
        passthrough["lang"] = draw(st.lists(st.sampled_from(["de", "zh", None]), min_size=6, max_size=6))
        samples.append(WdsSample(key, texts_, images, members, passthrough))
    return samples


@given(tar_samples())
@settings(max_examples=settings().max_examples // 3)
def test_tar_to_parquet_to_tar_to_parquet(samples):
    with tempfile.TemporaryDirectory() as directory:
        path = str(make_wds_tar(Path(directory, "0.tar"), samples))
        first = convert(path, Path(directory, "1"))
        second = convert(first, Path(directory, "2"))
        third = convert(second, Path(directory, "3"))
        expected = rows(read(first))
        assert rows(read(third)) == expected
        assert rows(read(second)) == expected
        assert len({row["sample_id"] for row in expected}) == len(samples)


@st.composite
def item_rows(draw) -> list[dict]:
    """Rows of which no tar was read: several items of one position, and positions that are far apart."""
    found = []
    for sample_id in draw(st.lists(names, max_size=3, unique=True)):
        found.append(metadata(sample_id, score=draw(st.none() | numbers)))
        positions = draw(st.lists(st.integers(0, 4) | st.integers(0, 2**31 - 1), max_size=6))
        for position in sorted(positions):
            if draw(st.booleans()):
                found.append(text(position, draw(texts), sample_id, lang=draw(st.none() | texts)))
            else:
                data = PNG + draw(st.binary(max_size=5))
                found.append(image(position, data, sample_id, width=draw(st.none() | st.integers(0, 9))))
    return sorted_rows(found)


def sorted_rows(found: list[dict]) -> list[dict]:
    """In the order in which the reader of tars gives the rows of a sample: texts before images of the same position."""
    order = list(dict.fromkeys(row["sample_id"] for row in found))
    return sorted(found, key=lambda row: (order.index(row["sample_id"]), row["position"], row["modality"] == "image"))


TYPES = {"score": pa.float64(), "width": pa.int64()}


@given(item_rows())
@settings(max_examples=settings().max_examples // 3)
def test_parquet_to_tar_to_parquet(found):
    batch = item_batch(found, TYPES)
    with tempfile.TemporaryDirectory() as directory:
        first = InterleavedParquetWriter(Path(directory, "1")).write(batch)
        second = convert(first, Path(directory, "2"))
        third = convert(second, Path(directory, "3"))
        for path in (first, second, third):
            assert rows(align_table(read(path), batch.table.schema)) == rows(batch.table)


def test_an_image_without_bytes_does_not_become_another_one(tmp_path):
    """Curator's reader takes the first image of the sample for any that is no member."""
    batch = item_batch([metadata(), image(0, PNG), image(1, None), image(2, PNG + b"2")])
    path = InterleavedWebdatasetWriter(tmp_path, materialize_on_write=False).write(batch)
    found = read(path).to_pylist()
    assert [row["position"] for row in found] == [-1, 0, 1, 2]
    assert [row["binary_content"] for row in found] == [None, PNG, None, PNG + b"2"]


def test_frames_keep_their_data(tmp_path):
    """JPEG data of MINT-1T's frames is the same after four files."""
    sample = mint_sample(3, frames=4, compression="jpeg")
    path = str(make_wds_tar(tmp_path / "0.tar", [sample]))
    for number in range(4):
        path = convert(path, tmp_path / str(number))
    (tiff,) = sample.members.values()
    frames = [data for data in read(path)["binary_content"].to_pylist() if data is not None]
    assert len(frames) == 4
    assert all(frame[-100:] in tiff for frame in frames)
