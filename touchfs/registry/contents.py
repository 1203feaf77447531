"""The contents of the fields of an open shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from touchfs.core.extent import Content, Extent
from touchfs.form.lengths import info_of
from touchfs.limits import Limits
from touchfs.registry.open import KnownShard
from touchfs.shard.sample import Field
from touchfs.source.store import StoredFile

if TYPE_CHECKING:
    from touchfs.media.slices.media_info import MediaInfo


class FieldContents:
    """The contents of the fields of a shard.

    Each file of the shard is opened once, when a field needs it.
    """

    def __init__(self, shard: KnownShard, limits: Limits) -> None:
        self.shard = shard
        self._limits = limits
        self._sources: dict[str, StoredFile] = {}

    def content(self, field: Field) -> Content:
        """The file that a field becomes. Raises FormatError; reading it raises the errors of sources."""
        source = self.source(field)
        return field.form.content(Extent(source, field.offset, field.size), field.detail, self._limits)

    def info(self, field: Field) -> MediaInfo:
        """Describe the recording of a field. Raises as `info_of`."""
        stored = Extent(self.source(field), field.offset, field.size)
        return info_of(field.form.stored(stored, field.detail, self._limits), self._limits)

    def source(self, field: Field) -> StoredFile:
        """The file of the shard that has a field."""
        source = self._sources.get(field.source)
        if source is None:
            source = self._sources[field.source] = self.shard.open_source(field.source)
        return source

    def close(self) -> None:
        """Close the files. A later read of a content opens its file again."""
        for source in self._sources.values():
            source.close()
