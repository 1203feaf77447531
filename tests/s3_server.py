"""Moto's S3 server on loopback: the real client is sent to it by the environment."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.request import Request, urlopen

import botocore.loaders
import botocore.session
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from touchfs.source.remote import clients

SECRET = "planted-secret-of-the-store"
# Clients share what botocore reads of its own files, which takes each of them a tenth of a second of processor.
botocore.session.create_loader = cache(botocore.loaders.create_loader)


@cache
def _url() -> str:
    """The URL of the server of this process, which starts when it is first asked for. Its buckets are global anyway."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


def environment() -> dict[str, str]:
    """What sends clients to it, also those of other processes."""
    return {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": _url(),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def s3_server(patch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    """A client of the server, with the bucket `data`, and nothing in it."""
    for name, value in environment().items():
        patch.setenv(name, value)
    clients._CLIENTS.forget()  # those of an earlier test
    for method, path in (("POST", "moto-api/reset"), ("PUT", "data")):
        with urlopen(Request(f"{_url()}/{path}", method=method)):
            pass
    yield s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)


@contextmanager
def asked_of_s3() -> Iterator[list[str]]:
    """The requests of all clients of this process, as their method and key."""
    asked, call = list[str](), s3fs.S3FileSystem._call_s3

    async def noted(client, method, *arguments, **options):
        asked.append(f"{method} {options.get('Key', '')}".rstrip())
        return await call(client, method, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3fs.S3FileSystem, "_call_s3", noted)
        yield asked


def upload(client: s3fs.S3FileSystem, directory: Path, target: str) -> None:
    """Put all files below a directory there, under their relative names."""
    for path in directory.rglob("*"):
        if path.is_file():
            client.pipe(f"{target}/{path.relative_to(directory)}", path.read_bytes())
