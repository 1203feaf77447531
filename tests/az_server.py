"""Azurite on loopback: the real client of Azure's blobs is sent to it by the environment."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import adlfs
import pytest

from touchfs.source.remote import clients

AZURITE = Path(__file__).parents[1] / ".venv-azurite/node_modules/.bin/azurite-blob"
# Azurite's documentation has this account and key for everybody.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
LISTENS = "successfully listens on "


@contextmanager
def az_server(place: Path, patch: pytest.MonkeyPatch) -> Iterator[adlfs.AzureBlobFileSystem]:
    """A client of a new server with the container `data`."""
    log = place / "azurite.log"
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--skipApiVersionCheck"]
    with open(log, "wb") as output:
        process = subprocess.Popen([AZURITE, *options, "--disableTelemetry"], cwd=place, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 60
        while LISTENS not in (said := log.read_text()):
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
        url = said.partition(LISTENS)[2].split()[0]
        account = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY}"
        patch.setenv("AZURE_STORAGE_CONNECTION_STRING", f"{account};BlobEndpoint={url}/{ACCOUNT};")
        clients._CLIENTS.forget()  # those of an earlier server
        client = adlfs.AzureBlobFileSystem(use_listings_cache=False, skip_instance_cache=True)
        client.mkdir("data")
        yield client
    finally:
        process.kill()
        process.wait()
