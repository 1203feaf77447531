"""The form of items whose bytes the index could not find. Reading one fails with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent
from touchfs.form.base import Form
from touchfs.limits import Limits


@dataclass(frozen=True, slots=True)
class FailedItem(Form):
    """`failed`: there are no bytes, and `detail` says why."""

    reads_shard: ClassVar[bool] = False

    def __str__(self) -> str:
        return "failed"

    def size(self, length: int, detail: bytes) -> None:
        return None  # with the size 0 nobody would read it, and be told why

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> NoReturn:
        raise FormatError(detail.decode("utf-8", "replace"))


FAILED = FailedItem()
