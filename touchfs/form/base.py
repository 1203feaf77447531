"""The contract of a form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from touchfs.extent import Content, Extent
from touchfs.limits import Limits


class Timing(NamedTuple):
    """The length of a recording: `frames` samples per channel at `rate` Hz."""

    frames: int
    rate: int


class Form(ABC):
    """How the stored bytes of a field become a file.

    A form is a frozen dataclass of its parameters. `str()` is its name in catalogs, and `table.parse_form` parses that.
    `detail` contains the parameters that differ from file to file. All methods raise FormatError if it is damaged.
    """

    __slots__ = ()

    # False if the file is made from `detail` alone: the shard's file need not exist, and `content` ignores the extent.
    reads_shard: ClassVar[bool] = True

    @abstractmethod
    def size(self, length: int, detail: bytes) -> int:
        """Size in bytes of the file that `length` stored bytes become. Reads nothing, so `stat` costs nothing."""

    @abstractmethod
    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        """The content of the file that is stored in an extent. Reads nothing of it yet."""

    def timing(self, length: int, detail: bytes) -> Timing | None:
        """The length of the recording that `length` stored bytes become; None if the form does not tell it."""
        return None
