"""A directory of each kind of store, at a real server or emulator on loopback."""

import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from az_server import az_server
from gs_server import gs_server
from hf_server import REPOSITORY, hf_server
from s3_server import s3_server
from sftp_server import sftp_server

# Azurite takes two seconds to start.
STORES = ["s3", "gs", pytest.param("az", marks=pytest.mark.variant), "hf", "sftp"]


@contextmanager
def place_in(
    store: str, tmp_path: Path, patch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Callable[[str, bytes], object]]]:
    """The URL of a directory in a store, and a function that puts a file there."""
    if store == "hf":
        with hf_server(tmp_path, patch) as hub:
            yield f"hf://datasets/{REPOSITORY}/set", lambda name, data: hub.files.update({f"set/{name}": data})
    elif store == "sftp":
        root = tmp_path / "root/set"
        root.mkdir(parents=True)

        def put(name: str, data: bytes) -> None:
            (root / name).write_bytes(data)
            os.utime(root / name, ns=(0, random.Random(data).randrange(10**9) * 10**9))

        with sftp_server(tmp_path / "root", tmp_path / "home", patch) as server:
            server.know()
            yield f"{server.url}/set", put
    else:
        made = {"s3": s3_server, "gs": gs_server, "az": az_server}
        with made[store](patch) as client:

            def put(name: str, data: bytes) -> None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)  # gcsfs writes large bodies at once
                    client.pipe_file(f"data/set/{name}", data)

            yield f"{store}://data/set", put
