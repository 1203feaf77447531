"""A file that a view shows: where its bytes are, and how they become a content.

Sizes are arithmetic (`size_of`), so a view costs no IO and `stat` is exact; what has to be computed from a sample's
bytes, such as a transcript, is computed by the view and kept (`inline`) in the catalog.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from touchfs.errors import FormatError
from touchfs.extent import Content, Extent, Memory, Rope
from touchfs.format import npy, wav
from touchfs.sample import Field


class File(NamedTuple):
    """`field` is an extent of the shard with its form; `extension` is what its name ends in, without a dot.

    Where `inline` has the bytes, the field is what they were computed from.
    """

    extension: str
    field: Field
    part: int = 0
    inline: bytes | None = None

    @classmethod
    def text(cls, extension: str, source: Field, text: str, part: int = 0) -> File:
        """Text that was found in a field. Half a surrogate pair, which JSON can spell, becomes U+FFFD."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            data = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        return cls(extension, source, part, data)

    @property
    def form(self) -> str:
        return "inline" if self.inline is not None else self.field.form

    @property
    def size(self) -> int:
        return len(self.inline) if self.inline is not None else size_of(self.field.form, self.field.size)


def size_of(form: str, length: int) -> int:
    """The size of the file that `length` bytes make in a form."""
    if form.startswith("wav/"):
        return wav.header_size(length) + length
    if form.startswith("npy/"):
        return _npy_header_size(form.removeprefix("npy/")) + length
    return length


@cache
def _npy_header_size(dtype: str) -> int:
    """That of any one-dimensional array: the header has room for the length to grow."""
    return len(npy.build_header(np.dtype(dtype), (0,)))


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
