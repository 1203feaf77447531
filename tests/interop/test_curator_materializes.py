"""NeMo Curator gives images the same bytes, and the same errors, but for its faults."""

import io

import numpy as np
import pyarrow as pa
import pytest
from interleaved_tars import make_image, make_tiff, make_wds_tar
from item_rows import batch_of, contents, errors, image_row, ranges_of, text_row
from items_http import serving
from PIL import Image

from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.materialize import materialize

pytestmark = pytest.mark.variant  # the environment of Curator, whose import takes ten seconds


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    members = [(f"{i}.png", make_image("png", seed=i)) for i in range(5)]
    members += [("a.tiff", make_tiff(3, "tiff_lzw")), ("b.tiff", make_tiff(2)), ("0.png", b"the last one counts")]
    make_wds_tar(directory / "x.tar", members)
    make_wds_tar(directory / "x.tar.gz", members)
    (directory / "alone.png").write_bytes(make_image("png", seed=9))
    return directory


def by_curator(curator, batch):
    """The bytes and errors of all rows by Curator."""
    found = InterleavedBatch(curator.materialize(batch.table))
    return contents(found), errors(found)


def test_random_rows(curator, data):
    random = np.random.default_rng(7)
    tar, alone, compressed = str(data / "x.tar"), str(data / "alone.png"), str(data / "x.tar.gz")
    ranges = ranges_of(data / "x.tar")
    names = [*ranges, "gone.png"]
    with serving() as server:
        server.files = {"/x.tar": (data / "x.tar").read_bytes(), "/alone.png": (data / "alone.png").read_bytes()}
        paths = [tar, alone, f"{server.url}/x.tar", f"{server.url}/alone.png", str(data / "gone.tar")]
        for _ in range(40):
            rows = [text_row(-1, "first")]
            for position in range(random.integers(1, 12)):
                path = paths[random.integers(len(paths))]
                name = names[random.integers(len(names))]
                offset, size = ranges.get(name, (0, 0))
                frame = int(random.integers(4)) if name.endswith("tiff") else None
                rows += [
                    image_row(position, path, name, offset, size, frame),
                    image_row(position, path, name, None, None, frame),
                    image_row(position, path),
                    image_row(position, compressed, name),
                    image_row(position),
                ][random.integers(5) :][:1]
            batch = batch_of(rows, tar, compressed, str(data / "gone.tar"))
            found = materialize(batch, [server.url, alone])
            expected, problems = by_curator(curator, batch)
            # A file that is shorter than a range gives it fewer bytes; ours is an error.
            cut = [row for row, error in enumerate(errors(found)) if (error or "").startswith("range read error")]
            assert [error for row, error in enumerate(errors(found)) if row not in cut] == [
                error for row, error in enumerate(problems) if row not in cut
            ]
            for row, (ours, theirs) in enumerate(zip(contents(found), expected, strict=True)):
                if row not in cut:
                    assert same(ours, theirs)


def same(ours, theirs):
    """Equal bytes; of frames, which Curator encodes again, equal pixels."""
    if ours == theirs or ours is None or theirs is None or ours[:2] not in (b"II", b"MM"):
        return ours == theirs
    with Image.open(io.BytesIO(ours)) as one, Image.open(io.BytesIO(theirs)) as other:
        return np.array_equal(np.asarray(one), np.asarray(other))


def test_its_columns_are_ours(curator, data):
    rows = [image_row(0, str(data / "alone.png"), url="u", _src_own="o"), text_row(1, "t")]
    batch = batch_of(rows, str(data / "x.tar"))
    found = curator.materialize(batch.table)
    assert found.column_names == materialize(batch).table.column_names


def test_locators_are_its_locators(curator, data):
    """Curator reads the images by the locators that we write, in a tar of ours."""
    tar = data / "x.tar"
    rows = [image_row(i, str(tar), name, *ranges_of(tar)[name]) for i, name in enumerate(ranges_of(tar))]
    expected, problems = by_curator(curator, batch_of(rows))
    assert problems == [None] * len(rows)
    assert pa.array(expected).equals(pa.array(contents(materialize(batch_of(rows, str(tar))))))
