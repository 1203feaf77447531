"""A cluster for all tests that do not harm it, whose workers have another current directory than the tests."""

import pytest
from dask_cluster import cluster


@pytest.fixture(scope="session")
def dask(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made
