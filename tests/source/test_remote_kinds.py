"""Every kind of shard has the same samples at a URL as on the disk."""

from contextlib import ExitStack
from functools import cache

import pytest
from az_server import az_server
from every_kind import files_of
from gs_server import gs_server
from hf_server import REPOSITORY, hf_server
from range_server import range_server
from s3_server import s3_server, upload
from sftp_server import sftp_server

import touchfs


@pytest.fixture(scope="module", autouse=True)
def _scratch(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path_factory.mktemp("scratch")))
        yield patch


@pytest.fixture(scope="module")
def url_in(every_kind, _scratch, tmp_path_factory):
    """A function that puts the same directories into a store, the first time that it is asked for them, and returns
    their URL."""
    with ExitStack() as servers:

        def put(store):
            if store == "memory":
                return put_in_memory(every_kind)
            if store == "sftp":
                sftp = servers.enter_context(
                    sftp_server(every_kind, tmp_path_factory.mktemp("home") / "user", _scratch)
                )
                sftp.know()
                return sftp.url
            if store in OBJECTS:
                upload(servers.enter_context(OBJECTS[store](_scratch)), every_kind, "data/set")
                return f"{store}://data/set"
            found = [path for path in every_kind.rglob("*") if path.is_file()]
            files = {str(path.relative_to(every_kind)): path.read_bytes() for path in found}
            if store == "hf":
                hub = servers.enter_context(hf_server(tmp_path_factory.mktemp("hub"), _scratch))
                hub.files.update({f"set/{name}": data for name, data in files.items()})
                return f"hf://datasets/{REPOSITORY}/set"
            server = servers.enter_context(range_server())
            for name, data in files.items():
                server.put(f"/set/{name}", data)
            return f"{server.url}/set"

        yield cache(put)


OBJECTS = {"s3": s3_server, "gs": gs_server, "az": az_server}
STORES, OTHERS = ["http", "s3"], ["gs", "hf", "sftp", "az", "memory"]


def put_in_memory(place):
    import fsspec

    fsspec.filesystem("memory").put(str(place), "/set", recursive=True)
    return "memory://set"


@pytest.fixture(scope="module")
def here(every_kind):
    """The files of a kind on the disk, and the problems."""
    return cache(lambda kind: files_of(every_kind / kind))


def check_the_same_samples(url, here, kinds):
    for kind in kinds:
        expected, reports = here(kind)
        assert len(expected) > 2
        assert files_of(f"{url}/{kind}") == (expected, reports), kind


@pytest.mark.parametrize("store", STORES)
def test_the_same_samples(every_kind, url_in, here, store):
    """Each kind is in one of two stores: what others give is what is read of them (`test_remote_stores.py`)."""
    kinds = sorted(path.name for path in every_kind.iterdir())
    assert len(kinds) == 15
    check_the_same_samples(url_in(store), here, kinds[STORES.index(store) :: 2])


@pytest.mark.variant
@pytest.mark.parametrize("store", OTHERS)
def test_the_same_samples_of_other_stores(every_kind, url_in, here, store):
    """Each kind is in one of them."""
    kinds = sorted(path.name for path in every_kind.iterdir())
    check_the_same_samples(url_in(store), here, kinds[OTHERS.index(store) :: len(OTHERS)])


def test_the_library_opens_a_url(every_kind, url_in):
    local = touchfs.open(every_kind / "tar")
    remote = touchfs.open(f"{url_in('memory')}/tar/a.tar")
    assert [sample.key for sample in remote] == [sample.key for sample in local]
    assert bytes(remote[3]["bin"]) == bytes(local[3]["bin"])
