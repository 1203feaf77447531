"""Azurite on loopback: the real client of Azure's blobs is sent to it by the environment."""

import atexit
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import adlfs
import pytest
from waiting import wait_until

from touchfs.source.remote import clients

AZURITE = Path(__file__).parents[1] / ".venv-azurite/node_modules/.bin/azurite-blob"
# Azurite's documentation has this account and key for everybody.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
LISTENS = "successfully listens on "


@cache
def _azurite() -> tuple[str, Path]:
    """The URL and the log of the server of this process. To start one takes two seconds of a processor."""
    directory = tempfile.TemporaryDirectory(prefix="touchfs-azurite-")
    log = Path(directory.name, "log")
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck"]
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [AZURITE, *options, "--disableTelemetry"], cwd=directory.name, stdout=output, stderr=output
        )

    @atexit.register
    def end() -> None:
        process.kill()
        process.wait()
        directory.cleanup()

    wait_until(lambda: LISTENS in log.read_text() or process.poll() is not None)
    said = log.read_text()
    assert LISTENS in said, said
    return said.partition(LISTENS)[2].split()[0], log


def requests() -> int:
    """How many it has answered."""
    return sum('HTTP/1.1"' in line for line in _azurite()[1].read_text().splitlines())


@contextmanager
def az_server(patch: pytest.MonkeyPatch) -> Iterator[adlfs.AzureBlobFileSystem]:
    """A client of the server, with the container `data`, and nothing in it."""
    url, _ = _azurite()
    account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
    patch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"{account};BlobEndpoint={url}/{ACCOUNT};")
    clients._CLIENTS.forget()  # those of an earlier test
    client = adlfs.AzureBlobFileSystem(skip_instance_cache=True)
    if "data" in client.ls(""):
        client.rm("data", recursive=True)
    client.mkdir("data")
    client.invalidate_cache()
    yield client
