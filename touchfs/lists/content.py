"""A list as a content: its size is known, and any range of it is made from the records that it shows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from touchfs.core.extent import Buffer, Content, Memory, Rope
from touchfs.form.computed import ComputedContent
from touchfs.lists.catalog import catalog_content
from touchfs.lists.kinds import CATALOG, LISTS, encode

if TYPE_CHECKING:
    from touchfs.lists.stored import StoredLists

# Made at a time: several blocks, so that few are made twice, and a few milliseconds for the first byte.
_WINDOW = 1 << 19


def list_size(lists: StoredLists, name: str, prefix: str) -> int:
    """The size of a list in bytes."""
    if name == CATALOG:
        return lists.catalog_sizes(prefix).size
    kind, size = LISTS[name], int(lists.starts(name, prefix)[-1])
    return len(encode(kind.header)) + size + len(encode(kind.footer) if size else b"")


def list_content(lists: StoredLists, name: str, prefix: str) -> Content:
    """The content of a list whose paths begin with `prefix`. Raises UsageError as `ListKind.check_prefix`."""
    if name == CATALOG:
        return catalog_content(lists.catalog_sizes(prefix), partial(lists.utterances, prefix))
    kind, starts = LISTS[name], lists.starts(name, prefix)
    kind.check_prefix(prefix)
    size = int(starts[-1])
    body = ComputedContent(size, _WINDOW, partial(_render, lists, name, prefix, starts.data))
    return Rope((Memory(encode(kind.header)), body, Memory(encode(kind.footer) if size else b"")))


def list_pieces(lists: StoredLists, name: str, prefix: str) -> Iterator[Buffer]:
    """Yield a list from its beginning to its end. Unlike in a content, a prefix in a CSV may need quotes."""
    if name == CATALOG:
        content = list_content(lists, name, prefix)
        yield from (content.read(offset, _WINDOW) for offset in range(0, content.size, _WINDOW))
        return
    kind = LISTS[name]
    kind.check_prefix(prefix)
    yield encode(kind.header)
    yield from lists.pieces(name, prefix)
    if lists.count(name):
        yield encode(kind.footer)


def _render(lists: StoredLists, name: str, prefix: str, starts: memoryview[int], offset: int, length: int) -> bytes:
    first = bisect_right(starts, offset) - 1
    last = bisect_right(starts, offset + length - 1)
    data = b"".join(lists.pieces(name, prefix, first, last))
    skipped = offset - starts[first]
    return data[skipped : skipped + length]
