"""Repositories of Hugging Face."""

from __future__ import annotations

from typing import Any, NamedTuple

from touchfs.source.fingerprint import Fingerprint
from touchfs.source.remote.calls import in_thread
from touchfs.source.remote.protocols import Place


def hugging_face_client(_: str, settings: dict[str, Any]) -> Any:
    """The client of the Hub, which has one host."""
    from touchfs.source.remote.protocols.hugging_face_client import HuggingFaceClient

    return HuggingFaceClient(**settings)


class HuggingFaceRequest(NamedTuple):
    """A range of a file of a branch, which has no condition."""

    url: str
    place: Place
    version: Fingerprint

    @property
    def is_conditional(self) -> bool:
        return False

    async def read(self, start: int, stop: int) -> bytes:
        return await in_thread(self._read, start, stop)

    def _read(self, start: int, stop: int) -> bytes:
        client, path = self.place
        with client.open(path, size=self.version.size, cache_type="none") as file:
            data: bytes = file._fetch_range(start, stop)
        return data
