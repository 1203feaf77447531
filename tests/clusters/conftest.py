"""A cluster that the tests of a file share, because a scheduler and its workers take seconds to start.

They take a tenth of a processor also while nothing runs, so they do not outlive the file.
"""

import pytest
from dask_cluster import ELSEWHERE, MODULES, cluster
from s3_server import environment


@pytest.fixture(scope="module")
def _dask(tmp_path_factory):
    place = tmp_path_factory.mktemp("cluster")
    with cluster(place, dashboard=True, before=ELSEWHERE, **MODULES, **environment()) as made:
        yield made


@pytest.fixture
def dask(_dask):
    """Its two workers are as on another machine: their current directory is not that of the tests, and they see other
    processes. They have credentials of a store, which Dask does not send to them. A test may kill them."""
    _dask.have(2)
    return _dask
