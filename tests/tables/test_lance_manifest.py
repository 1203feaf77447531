import random

import lance
import pyarrow as pa
import pytest

from touchfs.core.errors import FormatError
from touchfs.core.extent import Memory, drive
from touchfs.tables.lance.manifest import LanceManifest, read_manifest


def parse(data: bytes) -> LanceManifest:
    return drive(read_manifest(len(data)), Memory(data))


def newest(path) -> bytes:
    return min((path / "_versions").glob("*.manifest")).read_bytes()


@pytest.fixture
def path(tmp_path):
    lance.write_dataset(pa.table({"n": range(1000), "text": ["x"] * 1000}), tmp_path / "a", max_rows_per_file=300)
    return tmp_path / "a"


def test_rows_of_fragments_are_those_that_lance_counts(path):
    found = parse(newest(path))
    assert (found.version, found.fragment_rows) == (1, (300, 300, 300, 100))
    lance.dataset(path).delete("n < 20 or n > 990")
    lance.write_dataset(pa.table({"n": range(7), "text": ["y"] * 7}), path, mode="append")
    first, found, dataset = found, parse(newest(path)), lance.dataset(path)
    assert found.digest != first.digest
    assert found.fragment_rows == tuple(fragment.count_rows() for fragment in dataset.get_fragments())
    assert (found.version, found.rows) == (dataset.version, dataset.count_rows()) == (3, 978)
    lance.dataset(path).delete("n >= 0")
    assert parse(newest(path)).rows == 0


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "legacy"])
def test_manifests_of_all_versions_of_files(tmp_path, version):
    table = pa.table({"n": range(30)})
    lance.write_dataset(table, tmp_path / "a", max_rows_per_file=20, data_storage_version=version)
    assert parse(newest(tmp_path / "a")).fragment_rows == (20, 10)


def test_damage_is_an_error_or_another_count(path):
    data = newest(path)
    chooser = random.Random(1)
    for size in range(len(data)):
        with pytest.raises(FormatError):
            parse(data[:size])
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(chooser.choice((1, 1, 5))):
            damaged[chooser.randrange(len(data))] ^= 1 << chooser.randrange(8)
        try:
            assert parse(bytes(damaged)).rows >= 0
        except FormatError as error:
            assert "\n" not in str(error)
