"""fsspec's own tests of `get`, over a tar that has the files which they would write."""

from hashlib import md5

import pytest
from fsspec.tests.abstract import AbstractFixtures
from fsspec.tests.abstract.get import AbstractGetTests
from tars import write_tar

from touchfs.filesystem import TouchFileSystem

BULK = ("file1", "file2", "subdir/subfile1", "subdir/subfile2", "subdir/nesteddir/nestedfile")
EDGES = (
    "file1",
    "file2",
    *(f"subdir{n}/{name}" for n in (0, 1) for name in ("subfile1", "subfile2", "nesteddir/nestedfile")),
)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    place = tmp_path_factory.mktemp("packed")
    write_tar(place / "bulk.tar", {f"source/{name}": b"" for name in BULK})
    write_tar(place / "edges.tar", {f"source/{name}": b"" for name in EDGES})
    write_tar(place / "prefix.tar", {"source/subdir.txt": b"", "source/subdir/subfile.txt": b""})
    hashed = {f"source/{md5(str(i).encode()).hexdigest()}.txt": str(i).encode() for i in range(10)}
    write_tar(place / "hashed.tar", hashed)
    write_tar(place / "whole.tar", {"src/file": b""})
    return place


class TestGet(AbstractFixtures, AbstractGetTests):
    @pytest.fixture
    def fs(self, packed):
        return TouchFileSystem(packed)

    @pytest.fixture
    def fs_path(self):
        return "shards/whole"

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self):
        return "shards/bulk/source"

    @pytest.fixture
    def fs_glob_edge_cases_files(self):
        return "shards/edges/source"

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self):
        return "shards/prefix/source"

    @pytest.fixture
    def fs_10_files_with_hashed_names(self):
        return "shards/hashed/source"

    def test_get_directory_recursive(self, fs, fs_path, local_fs, local_join, local_target):
        """As fsspec's, without `mkdir` and `touch`."""
        for source in (f"{fs_path}/src", f"{fs_path}/src/"):
            fs.get(source, local_target, recursive=True)
            assert local_fs.isfile(local_join(local_target, "file"))
            assert not local_fs.exists(local_join(local_target, "src"))
            fs.get(source, local_target, recursive=True)
            assert local_fs.isfile(local_join(local_target, "src", "file")) != source.endswith("/")
            local_fs.rm(local_target, recursive=True)
