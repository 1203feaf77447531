"""Forms whose files are stored as they are: in one range of the shard, in several, or in the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from touchfs.core.extent import Content, Extent, Memory
from touchfs.form.base import Form
from touchfs.format import holes
from touchfs.limits import Limits


@dataclass(frozen=True, slots=True)
class Bytes(Form):
    """`bytes`: the stored bytes are the file."""

    def __str__(self) -> str:
        return "bytes"

    def size(self, length: int, detail: bytes) -> int:
        return length

    @property
    def is_stored(self) -> bool:
        return True

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return extent

    def stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent:
        return extent


@dataclass(frozen=True, slots=True)
class Inline(Form):
    """`inline`: `detail` is the file. It was computed from the stored bytes."""

    reads_shard: ClassVar[bool] = False

    def __str__(self) -> str:
        return "inline"

    def size(self, length: int, detail: bytes) -> int:
        return len(detail)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return Memory(detail)


@dataclass(frozen=True, slots=True)
class Sparse(Form):
    """`sparse`: pieces of a file with holes, end to end; `detail` maps them to offsets (`touchfs.format.holes`)."""

    def __str__(self) -> str:
        return "sparse"

    def size(self, length: int, detail: bytes) -> int:
        return holes.size_of(detail)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return holes.present(extent, detail)


# Nearly all fields have one of these forms, so there is one object of each.
BYTES, INLINE, SPARSE = Bytes(), Inline(), Sparse()
