"""A file that a view shows: the range of its bytes, and how they become its content.

Sizes are computed without IO (`size_of`), so `stat` is exact at no cost. Content that must be computed from the bytes
of a sample, such as a transcript, is computed by the view and stored (`inline`) in the catalog.
"""

from __future__ import annotations

from typing import NamedTuple

from touchfs.sample import Field
from touchfs.view.form import size_of


class File(NamedTuple):
    """One file of a sample. `field` is a range of the shard and its form, `extension` the end of the file's name.

    If `inline` has the bytes, they were computed from the field. `part` is the number of the segment, 0 for samples.
    """

    extension: str | None
    field: Field
    part: int = 0
    inline: bytes | None = None

    @classmethod
    def text(cls, extension: str, source: Field, text: str, part: int = 0) -> File:
        """A file with text from a field, as UTF-8. A lone surrogate, which JSON can contain, becomes U+FFFD."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            data = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        return cls(extension, source, part, data)

    @property
    def label(self) -> str:
        """The extension as a key of a sample: "" if there is none."""
        return self.extension or ""

    @property
    def form(self) -> str:
        """The form of the content, as in `touchfs.sample`."""
        return "inline" if self.inline is not None else self.field.form

    @property
    def detail(self) -> bytes:
        """The bytes that the catalog stores besides numbers: the inline content, or the detail of the field."""
        return self.field.detail if self.inline is None else self.inline

    @property
    def size(self) -> int:
        """Bytes of the content."""
        return size_of(self.form, self.field.size, self.detail)
