"""The rows of a backend as a sequence with a fingerprint, as a leaf of an iterator graph takes it."""

from __future__ import annotations

import json
from typing import Any

from touchfs.caches.backends.protocol import StorageBackend
from touchfs.core.names import hex_digest


class BackendRows:
    """The rows of a backend by number.

    The fingerprint is the backend's own if it has one, else that of its schema and its number of rows.
    """

    def __init__(self, backend: StorageBackend) -> None:
        self.backend = backend

    @property
    def fingerprint(self) -> str:
        """A text that differs if the rows differ: a state that was saved over other rows is refused."""
        own: str | None = getattr(self.backend, "fingerprint", None)
        if own is not None:
            return own
        return hex_digest(json.dumps([self.backend.num_rows, self.backend.schema.to_string()]).encode())

    def __len__(self) -> int:
        return self.backend.num_rows

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self.backend.get_row(number)
