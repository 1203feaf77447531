"""The place of the iterators of a dataset in a database."""

from __future__ import annotations

import re
from dataclasses import dataclass

from touchfs.errors import UsageError
from touchfs.store.postgres.address import DatabaseAddress

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,48}")


@dataclass(frozen=True, slots=True)
class FleetPlace:
    """The iterators called `name` at `address`. Files that belong to them are in `directory`, on this machine. `mount`
    is a random token of the mount that uses them, or empty for a command that has none.
    """

    address: DatabaseAddress
    name: str
    directory: str
    mount: bytes = b""

    @property
    def schema(self) -> str:
        """The name of the schema that has their tables."""
        return f"touchfs_{self.name}"

    @property
    def shown(self) -> str:
        """Its name in errors and logs."""
        return f"{self.address.shown} (state {self.name})"


def check_state_name(name: str, source: str, split: str | None = None) -> str:
    """Return the name of the state of a source: the given one or, if that is empty, the last part of the source's path,
    and its split.

    Raises UsageError for a name that cannot be used.
    """
    chosen = name or ".".join([source.rstrip("/").rpartition("/")[2], *([] if split is None else [split])])
    if not _NAME.fullmatch(chosen):
        raise UsageError(f"choose a --state-name of letters, digits and _.-, at most 48: {chosen!r:.80} cannot be used")
    return chosen
