"""Every kind of shard has the same samples at a URL as on the disk."""

from contextlib import ExitStack

import pytest
from az_server import az_server
from every_kind import files_of, write_every_kind
from gs_server import gs_server
from hf_server import REPOSITORY, hf_server
from range_server import range_server
from s3_server import s3_server, upload
from sftp_server import sftp_server

import touchfs


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("kinds")
    write_every_kind(place)
    return place


@pytest.fixture(scope="module", autouse=True)
def _scratch(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path_factory.mktemp("scratch")))
        yield patch


@pytest.fixture(scope="module")
def urls(place, _scratch, tmp_path_factory):
    """The URL of the same directories, by the store."""
    with ExitStack() as servers:
        server = servers.enter_context(range_server())
        objects = {
            "s3": servers.enter_context(s3_server(_scratch)),
            "gs": servers.enter_context(gs_server(_scratch)),
            "az": servers.enter_context(az_server(tmp_path_factory.mktemp("azurite"), _scratch)),
        }
        hub = servers.enter_context(hf_server(tmp_path_factory.mktemp("hub"), _scratch))
        sftp = servers.enter_context(sftp_server(place, tmp_path_factory.mktemp("home") / "user", _scratch))
        sftp.know()
        for client in objects.values():
            upload(client, place, "data/set")
        for path in filter(lambda path: path.is_file(), place.rglob("*")):
            server.put(f"/set/{path.relative_to(place)}", path.read_bytes())
            hub.files[f"set/{path.relative_to(place)}"] = path.read_bytes()
        yield {
            "http": f"{server.url}/set",
            "hf": f"hf://datasets/{REPOSITORY}/set",
            "sftp": sftp.url,
            "memory": put_in_memory(place),
            **{store: f"{store}://data/set" for store in objects},
        }


def put_in_memory(place):
    import fsspec

    fsspec.filesystem("memory").put(str(place), "/set", recursive=True)
    return "memory://set"


@pytest.mark.parametrize("store", ["http", "s3", "gs", "az", "hf", "sftp", "memory"])
def test_the_same_samples(place, urls, store):
    kinds = {path.name for path in place.iterdir()}
    assert len(kinds) == 15
    for kind in sorted(kinds):
        expected, reports = files_of(place / kind)
        assert len(expected) > 2
        assert files_of(f"{urls[store]}/{kind}") == (expected, reports), kind


def test_the_library_opens_a_url(place, urls):
    local = touchfs.open(place / "tar")
    remote = touchfs.open(f"{urls['memory']}/tar/a.tar")
    assert [sample.key for sample in remote] == [sample.key for sample in local]
    assert bytes(remote[3]["bin"]) == bytes(local[3]["bin"])
