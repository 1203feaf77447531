"""A cluster that the tests of a file share, because a scheduler and its workers take a second to start.

They take a tenth of a processor also while nothing runs, so they do not outlive the file.
"""

import pytest
from dask_cluster import ELSEWHERE, MODULES, PRELOADED, cluster
from own_forkserver import preloaded
from s3_server import environment


@pytest.fixture(scope="module")
def forked():
    """What starts the processes of clusters."""
    with preloaded(*PRELOADED) as context:
        yield context


@pytest.fixture(scope="module")
def dask_of_any_size(tmp_path_factory, forked):
    """A cluster whose workers a test starts or kills itself: `have` says how many."""
    place = tmp_path_factory.mktemp("cluster")
    with cluster(place, forked, workers=0, dashboard=True, machine=ELSEWHERE, **MODULES, **environment()) as made:
        yield made


@pytest.fixture
def dask(dask_of_any_size):
    """Its two workers are as on another machine: their current directory is not that of the tests, and they see other
    processes. They have credentials of a store, which Dask does not send to them. A test may kill them."""
    dask_of_any_size.have(2)
    return dask_of_any_size
