"""The contract of a form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.limits import Limits
from touchfs.source.store import StoredFile

if TYPE_CHECKING:
    from touchfs.media.slices.read_slice import PcmSlice


class Timing(NamedTuple):
    """The length of a recording: `frames` samples per channel at `rate` Hz.

    `channels` and `sample_format` are those of its WAV file, or None if that is another file.
    """

    frames: int
    rate: int
    channels: int | None = None
    sample_format: str | None = None


class Form(ABC):
    """A rule that makes a file of the stored bytes of a field.

    A form is a frozen dataclass of its parameters. `str()` is its name in catalogs, and `table.parse_form` parses that.
    `detail` contains the parameters that differ from file to file. All methods raise FormatError if it is damaged.
    """

    __slots__ = ()

    # False if the file is made from `detail`, or from a file beside the shard that it names: the shard's file need not
    # exist, and `content` ignores the extent.
    reads_shard: ClassVar[bool] = True

    @property
    def is_stored(self) -> bool:
        """True if the bytes of the file are stored as they are shown. Pieces of a recording can be made of these."""
        return False

    @abstractmethod
    def size(self, length: int, detail: bytes) -> int | None:
        """Size in bytes of the file that `length` stored bytes become; None if it cannot be known without reading them.

        Reads nothing, so `stat` costs nothing.
        """

    @abstractmethod
    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        """The content of the file that is stored in an extent. Reads nothing of it yet."""

    def whole(self, extent: Extent, detail: bytes, limits: Limits) -> Buffer:
        """All bytes of the file that is stored in an extent."""
        content = self.content(extent, detail, limits)
        return content.read(0, content.size)

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        """Like `size`, also from what this process has read of the extent before. Never waits."""
        return self.size(extent.size, detail)

    def stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent:
        """The bytes of the file of a form that `is_stored`.

        Some forms must read the source to know where the bytes are: they may wait, and raise the errors of sources.
        """
        raise FormatError("its bytes are not stored as they are shown")

    def known_stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent | None:
        """Like `stored`, but None where that would have to wait."""
        return self.stored(extent, detail, limits)

    def beside(self, detail: bytes, limits: Limits) -> StoredFile | None:
        """The file beside the shard that has the bytes; None if there is none. Accesses nothing."""
        return None

    def timing(self, length: int, detail: bytes) -> Timing | None:
        """The length of the recording that `length` stored bytes become; None if the form does not tell it."""
        return None

    def known_timing(self, extent: Extent, detail: bytes) -> Timing | None:
        """Like `timing`, also from what this process has read of the extent before. Never waits."""
        return self.timing(extent.size, detail)

    def measured(self, extent: Extent, detail: bytes, limits: Limits) -> Timing | None:
        """Like `timing`; a length that the catalog does not have is read from the recording, which may wait."""
        return self.timing(extent.size, detail)

    def samples(self, extent: Extent, detail: bytes, limits: Limits) -> PcmSlice:
        """The samples of the recording, as they are decoded: those of a lossy coding are not rounded to 16 bits yet."""
        raise FormatError("is no recording")
