"""A file that a view shows: the range of its bytes, and how they become its content.

Content that must be computed from the bytes of a sample, such as a transcript, is computed by the view and stored in
the catalog (the form `inline`).
"""

from __future__ import annotations

from typing import NamedTuple

from touchfs.form.plain import INLINE
from touchfs.shard.sample import Field


class ViewFile(NamedTuple):
    """One file of a sample: its `extension` as a key, and `part`, the number of the segment, 0 for samples.

    `written` is the extension in the file's name, None if it is the same.
    """

    extension: str | None
    field: Field
    part: int = 0
    written: str | None = None

    @classmethod
    def text(cls, extension: str, source: Field, text: str, part: int = 0) -> ViewFile:
        """A file with text from a field, as UTF-8. A lone surrogate, which JSON can contain, becomes U+FFFD."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            data = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        field = Field(source.name, source.source, source.offset, source.size, INLINE, extension, detail=data)
        return cls(extension, field, part)

    @property
    def ending(self) -> str | None:
        return self.extension if self.written is None else self.written

    @property
    def label(self) -> str:
        """The extension as a key of a sample: "" if there is none."""
        return self.extension or ""

    @property
    def size(self) -> int:
        """Bytes of the content; 0 if that is not known without reading the shard."""
        return self.field.form.size(self.field.size, self.field.detail) or 0
