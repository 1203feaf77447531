"""Kinds of stores: how each is asked for bytes of one version of a file, where it differs from fsspec's common way."""

from __future__ import annotations

from typing import Any, NamedTuple


class Place(NamedTuple):
    """A client, and the path of a file or directory in its own notation."""

    client: Any
    path: str
