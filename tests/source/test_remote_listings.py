"""A listing says the versions of all files in it, so that nobody asks about each of them."""

import random

import pytest
from az_server import requests
from stores import place_in

from touchfs.core.errors import ChangedError, NotFoundError
from touchfs.source.data import DATA, Look
from touchfs.source.remote import store
from touchfs.source.store import FileType

COUNT = 12


@pytest.mark.variant
@pytest.mark.parametrize("has_quotes", [True, False], ids=["as Azurite", "as Azure"])
def test_azure_is_asked_once_for_all_files(tmp_path, monkeypatch, has_quotes):
    """Azure itself leaves out the quotes of etags in listings, and wants them in conditions."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("TOUCHFS_REVALIDATE", "1000")
    if not has_quotes:
        listed = store.list_directory
        monkeypatch.setattr(store, "list_directory", lambda url: [_without_quotes(each) for each in listed(url)])
    data = {f"{number}.bin": random.Random(number).randbytes(1000) for number in range(COUNT)}
    with place_in("az", tmp_path, monkeypatch) as (url, put):
        for name, content in data.items():
            put(name, content)
        asked = requests()
        look = Look()
        look.list(url)
        found = {name: look.stat(f"{url}/{name}").fingerprint for name in data}
        assert requests() - asked < COUNT
        assert found == {name: DATA.stat(f"{url}/{name}").fingerprint for name in data}
        for name, content in data.items():
            assert DATA.open(f"{url}/{name}", found[name]).read(0, 1000) == content
        opened = DATA.open(f"{url}/0.bin", found["0.bin"])
        put("0.bin", bytes(1000))
        with pytest.raises(ChangedError):
            opened.read(0, 1000)


def test_what_is_missing_is_asked_for_once(tmp_path):
    """As the lists that each of a thousand shards of a directory may have beside it. A new look asks anew."""
    look, path = Look(), str(tmp_path / "segments")
    with pytest.raises(NotFoundError):
        look.stat(path)
    (tmp_path / "segments").touch()
    with pytest.raises(NotFoundError):
        look.stat(path)
    assert Look().stat(path).type is FileType.FILE


def _without_quotes(info):
    return info | {"etag": info["etag"].strip('"')} if "etag" in info else info
