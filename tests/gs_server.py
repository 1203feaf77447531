"""An emulator of Google's store on loopback: the real client is sent to it by the environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from typing import Any

import pytest
from gcp_storage_emulator import server as emulator
from gcp_storage_emulator.handlers import buckets, objects
from gcsfs.core import GCSFileSystem

from touchfs.source.remote import clients


def download(request: Any, response: Any, storage: Any, *arguments: Any, **options: Any) -> None:
    """As the emulator does, which ignores conditions: with them, as Google's documentation of them says."""
    (wanted,) = request.query.get("ifGenerationMatch", [None])
    found = storage.get_file_obj(request.params["bucket_name"], request.params["object_id"])
    if wanted not in (None, found["generation"]):
        response.status = HTTPStatus.PRECONDITION_FAILED
    else:
        objects.download(request, response, storage, *arguments, **options)


@cache
def _server() -> emulator.Server:
    """The server of this process, which runs until its end: to stop one takes half a second."""
    server = emulator.create_server("127.0.0.1", 0, in_memory=True)
    server._api.daemon = True
    server.start()
    server._api._httpd.handle_error = lambda *_: None  # a client that goes away is not our concern
    return server


@contextmanager
def gs_server(patch: pytest.MonkeyPatch) -> Iterator[GCSFileSystem]:
    """A client of the server, with the bucket `data`, and nothing in it."""
    for _, methods in emulator.HANDLERS:
        if methods.get("GET") is objects.download:
            patch.setitem(methods, "GET", download)
    server = _server()
    server.wipe()
    buckets.create_bucket("data", server._storage)
    host, port = server._api._httpd.server_address
    patch.setenv("STORAGE_EMULATOR_HOST", f"http://{host}:{port}")
    clients._CLIENTS.forget()  # those of an earlier test
    yield GCSFileSystem(token="anon", use_listings_cache=False, skip_instance_cache=True)
