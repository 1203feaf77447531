"""A file that a view shows: where its bytes are, and how they become a content.

Sizes are arithmetic (`size_of`), so a view costs no IO and `stat` is exact; what has to be computed from a sample's
bytes, such as a transcript, is computed by the view and kept (`inline`) in the catalog.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from touchfs.errors import FormatError
from touchfs.extent import Content, Extent, Memory, Rope
from touchfs.format import npy, wav
from touchfs.sample import Field


@dataclass(frozen=True, slots=True)
class File:
    """`field` is an extent of the shard with its form; `extension` is what its name ends in, without a dot."""

    extension: str
    field: Field
    part: int = 0
    inline: bytes | None = None

    @classmethod
    def text(cls, extension: str, source: Field, text: str, part: int = 0) -> File:
        """Text that was found in a field. Half a surrogate pair, which JSON can spell, becomes U+FFFD."""
        data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
        return cls(extension, replace(source, form="inline", note=""), part, data)

    @property
    def size(self) -> int:
        return len(self.inline) if self.inline is not None else size_of(self.field.form, self.field.size)


def size_of(form: str, length: int) -> int:
    """The size of the file that `length` bytes make in a form."""
    kind, _, parameter = form.partition("/")
    if kind == "wav":
        return wav.header_size(length) + length
    if kind == "npy":
        dtype = np.dtype(parameter)
        return len(npy.build_header(dtype, (length // dtype.itemsize,))) + length
    return length


def presenter(form: str) -> Callable[[Extent], Content]:
    """What makes the content of a form from its extent. For all forms but `inline`."""
    kind, _, parameter = form.partition("/")
    if kind == "wav":
        rate = int(parameter)
        return lambda extent: Rope((Memory(wav.build_header(extent.size, rate)), extent))
    if kind == "npy":
        dtype = np.dtype(parameter)
        return lambda extent: Rope((Memory(npy.build_header(dtype, (extent.size // dtype.itemsize,))), extent))
    if kind == "bytes":
        return lambda extent: extent
    raise FormatError(f"the catalog names a form {form!r} that this touchfs does not know")
