"""A file that a view shows: where its bytes are, and how they become a content.

Sizes are arithmetic (`size_of`), so a view costs no IO and `stat` is exact; what has to be computed from a sample's
bytes, such as a transcript, is computed by the view and kept (`inline`) in the catalog.
"""

from __future__ import annotations

from typing import NamedTuple

from touchfs.sample import Field
from touchfs.view.form import size_of


class File(NamedTuple):
    """`field` is an extent of the shard with its form; `extension` is what its name ends in, as that of a field.

    Where `inline` has the bytes, the field is what they were computed from.
    """

    extension: str | None
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
    def label(self) -> str:
        """The extension by which a sample names the file."""
        return self.extension or ""

    @property
    def form(self) -> str:
        return "inline" if self.inline is not None else self.field.form

    @property
    def detail(self) -> bytes:
        """What the catalog keeps of it besides numbers: its bytes, or its field's detail."""
        return self.field.detail if self.inline is None else self.inline

    @property
    def size(self) -> int:
        return size_of(self.form, self.field.size, self.detail)
