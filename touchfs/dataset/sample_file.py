"""A file of a sample: where it is in the tree and where it is stored, and its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from touchfs.core.errors import NotFoundError
from touchfs.core.extent import Content, Extent
from touchfs.source.store import PlainRange


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


@runtime_checkable
class _Placed(Protocol):
    """A source that is a stored file."""

    def plain_range(self, offset: int, length: int) -> PlainRange | None: ...


@runtime_checkable
class _Findable(Protocol):
    """A content whose place has to be looked up."""

    def found(self) -> Content: ...


def plain_range_of(content: Content) -> PlainRange | None:
    """Where a content is stored as it is; None if it is computed, decoded or in several pieces.

    Raises the errors of its source, as the page of a Parquet cell may have to be read.
    """
    if isinstance(content, _Findable):
        content = content.found()
    if not isinstance(content, Extent) or not isinstance(content.source, _Placed):
        return None
    return content.source.plain_range(content.offset, content.size)
