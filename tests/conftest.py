"""Fixtures of all tests. Indexes and state go to a directory of the test run, not to the user's."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from range_server import range_server

pytest_plugins = ["floors", "browser"]

# How long an example takes, or is made, is up to the machine: it never fails a test.
settings.register_profile("touchfs", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("touchfs")
# The same properties, of an eighth of the examples for `make test`, and of half of them for `make test-all`.
settings.register_profile("fewer", settings.get_profile("touchfs"), max_examples=12)
settings.register_profile("half", settings.get_profile("touchfs"), max_examples=50)

# NumPy makes no threads when it is imported, which takes 0.05 s of processor in each process that tests start.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

# By these, Python and libraries behave otherwise: `fork_server.py` compares them.
READ_BY_IMPORTS = ("PYTHON", "LD_", "OMP_", "SSL_", "FSSPEC_")

# What a shell starts in the background has SIGINT ignored, and so would all that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """What is collected stays until the end: it is not looked through for garbage, again and again."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.fixture(scope="session")
def as_root():
    """For tests that make files of other users, or become another user. None is skipped."""
    assert os.geteuid() == 0, "this test makes files of other users: run the tests as root"


@pytest.fixture(scope="session")
def processes() -> Iterator[Executor]:
    """Processes that several tests take, as each costs a second to start."""
    with ProcessPoolExecutor(2, get_context("forkserver")) as executor:
        yield executor


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A scratch store of the test's own."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    return tmp_path / "scratch"


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Indexes of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/touchfs/index"


@pytest.fixture
def server(scratch):
    """A server of files in memory."""
    with range_server() as server:
        yield server


@pytest.fixture(scope="session")
def every_kind(tmp_path_factory):
    """A shard of each kind."""
    from every_kind import write_every_kind  # which imports much

    place = tmp_path_factory.mktemp("kinds")
    write_every_kind(place)
    return place


@pytest.fixture
def public():
    """A directory that every user can look into, unlike pytest's."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)  # a daemon that ends removes its mount point


@pytest.fixture(scope="session", autouse=True)
def _own_cache_and_state(tmp_path_factory):
    place = tmp_path_factory.mktemp("xdg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.fspath(place / "cache"))
        patch.setenv("XDG_STATE_HOME", os.fspath(place / "state"))
        patch.setenv("TOUCHFS_JOURNAL", "")  # logs are files, also where journald runs
        yield


@pytest.fixture(scope="module", autouse=True)
def _environment_of_the_next_file():
    """Dask sets PYTHONHASHSEED and OMP_NUM_THREADS where it starts workers, and leaves them to whatever comes after."""
    before = {name for name in os.environ if name.startswith(READ_BY_IMPORTS)}
    yield
    for name in list(os.environ):
        if name.startswith(READ_BY_IMPORTS) and name not in before:
            del os.environ[name]
