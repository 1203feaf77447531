"""A file of a sample: where it is in the tree, and its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from touchfs.core.errors import NotFoundError
from touchfs.core.extent import Content


class SampleFile(Protocol):
    """A file of a sample."""

    @property
    def field(self) -> str:
        """The name of the sample's field from which the file is made."""
        ...

    def path(self) -> str:
        """The path of the file, relative to the root of the tree. Raises NotFoundError if it has none."""
        ...

    def content(self) -> Content:
        """The bytes of the file, which can be read anywhere."""
        ...


class MadeFile(NamedTuple):
    """A file that is not in a catalog: of a `field`, with functions that return its `path` and its `content`."""

    field: str
    path: Callable[[], str]
    content: Callable[[], Content]


def path_or_none(file: SampleFile) -> str | None:
    """The path of a file, or None if it has none."""
    try:
        return file.path()
    except NotFoundError:
        return None


def no_path() -> str:
    """The path of a file of a streamed sample. Always raises NotFoundError."""
    raise NotFoundError("names are given when a shard is indexed, and this one is streamed")
