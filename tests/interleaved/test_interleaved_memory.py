"""Writers hold a row group or a sample in memory, however large the files are that they write."""

import sys

import pytest
from memory import peak

from touchfs.containers.tar.writer import TarWriter

MB = 2**20
IMAGES, IMAGE_SIZE = 500, MB
# A process with pyarrow, pandas and fsspec has 150 MB; a row group is 64 MB, and is held about three times.
ALLOWED = 400

SCRIPT = """
import sys
from touchfs.interleaved.read.webdataset import InterleavedWebdatasetReader
from touchfs.interleaved import write as interleaved

source, out, writer = sys.argv[1:]
with getattr(interleaved, writer)(out).writing([source]) as shard:
    for batch in InterleavedWebdatasetReader(source):
        assert len(batch.table) == 3 * 250
        shard.append(batch)
assert shard.rows == 3 * 250
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tar of 250 samples, with two images of 1 MB each."""
    path = tmp_path_factory.mktemp("source") / "a.tar"
    image = b"\xff\xd8\xff" + bytes(IMAGE_SIZE)
    with TarWriter(path) as tar:
        for number in range(IMAGES // 2):
            names = f'"{number}.0.jpg", "{number}.1.jpg"'
            tar.add(str(number), {"0.jpg": image, "1.jpg": image, "json": f'{{"images": [{names}]}}'.encode()})
    return path


@pytest.mark.soak
@pytest.mark.parametrize("writer", ["InterleavedParquetWriter", "InterleavedWebdatasetWriter"])
def test_the_memory_of_a_writer_is_limited(source, tmp_path, writer):
    done, megabytes = peak(tmp_path, sys.executable, "-c", SCRIPT, source, tmp_path / "out", writer)
    assert done.returncode == 0, done.stderr.decode()
    (path,) = (tmp_path / "out").iterdir()
    assert path.stat().st_size > IMAGES * IMAGE_SIZE
    assert megabytes < ALLOWED
