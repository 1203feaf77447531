"""A PostgreSQL for all tests, and one for each that harms it; and a small dataset."""

import os

import pytest
from postgres_server import own_server, postgres_data, server
from touchnet import UINT8, write_modality

from touchfs.indexing import open_dataset

__all__ = ["own_server", "postgres_data", "server"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, request):
    path = tmp_path_factory.mktemp("numbers") / "shards"
    lines = [b'{"key": "n%d"}' % number for number in range(request.module.COUNT)]
    write_modality(path / "0", "metainfo", UINT8, lines)
    return open_dataset(os.fspath(path), in_place=True)
