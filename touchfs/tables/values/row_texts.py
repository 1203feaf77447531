"""The texts of rows of a table as JSON: the content of their files, and what forms say of them.

The text of a row is made when its size is needed. `GROUP_ROWS` rows are made together, and the last groups are in
memory: a listing makes a group once for all its rows.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate
from urllib.parse import quote, unquote

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer
from touchfs.form.computed import WINDOWS
from touchfs.tables.values.field_paths import Path, build_path, parse_path
from touchfs.tables.values.partition import build_partition, parse_partition

GROUP_ROWS = 128
_END = struct.Struct("<I")
# What values of directories begin with: the `{` of a JSON object
_VALUES = "%7B"


def build_row(name: str, left_out: Sequence[Path], partition: str) -> str:
    """The text of a form of rows that leave out the cells at some paths and have the values of a partition."""
    return "/".join([name, *map(build_path, left_out), *([quote(partition, safe="")] if partition else [])])


def parse_row(parameters: Sequence[str]) -> tuple[tuple[Path, ...], str]:
    """The paths and the values of a partition in the parameters of a form. Raises ValueError or FormatError."""
    paths = [text for text in parameters if not text.startswith(_VALUES)]
    partition = "".join(map(unquote, parameters[len(paths) :]))
    return tuple(map(parse_path, paths)), build_partition(parse_partition(partition))


class RowTexts:
    """The texts of the rows of one table. `name` identifies the table and how its rows become text.

    `make` gets an ordinal and a number of rows, and returns the text of each, fewer at the end of the table.
    """

    __slots__ = ("_make", "_name")

    def __init__(self, name: Hashable, make: Callable[[int, int], list[bytes]]) -> None:
        self._name = name
        self._make = make

    def find(self, ordinal: int) -> bytes | None:
        """The text of a row if this process has it. Never waits."""
        number, i = divmod(ordinal, GROUP_ROWS)
        group = WINDOWS.find((self._name, number))
        return None if group is None else _text(group, i)

    def text(self, ordinal: int) -> bytes:
        """The text of a row. Makes its group if necessary; raises what `make` raises, and FormatError for no row.

        If its group cannot be made, as another row is damaged, it is made alone, and not kept.
        """
        text = self.find(ordinal)
        if text is None:
            number, i = divmod(ordinal, GROUP_ROWS)
            with _making:
                text = self.find(ordinal)
                if text is None:
                    try:
                        group = _pack(self._make(ordinal - i, GROUP_ROWS))
                    except FormatError:
                        return self._alone(ordinal)
                    WINDOWS.keep((self._name, number), group)
                    text = _text(group, i)
        return text

    def _alone(self, ordinal: int) -> bytes:
        texts = self._make(ordinal, 1)
        if not texts:
            raise _no_row()
        return texts[0]


def _no_row() -> FormatError:
    return FormatError("the table has no such row: index with --force")


def _pack(texts: list[bytes]) -> bytes:
    """A group: where each of `GROUP_ROWS` texts ends, and the texts."""
    ends = [*accumulate(map(len, texts))]
    return b"".join([*(_END.pack(end) for end in ends), bytes(_END.size * (GROUP_ROWS - len(texts))), *texts])


def _text(group: Buffer, i: int) -> bytes:
    start = _END.unpack_from(group, _END.size * (i - 1))[0] if i else 0
    end = _END.unpack_from(group, _END.size * i)[0]
    if not end:
        raise _no_row()
    head = _END.size * GROUP_ROWS
    return bytes(group[head + start : head + end])


# A group takes some milliseconds of Python; two at once would take twice as long each.
_making = threading.Lock()


class RowText:
    """The content of a row. Its size, and reading, block until the row is made."""

    __slots__ = ("_ordinal", "_rows")

    def __init__(self, rows: RowTexts, ordinal: int) -> None:
        self._rows = rows
        self._ordinal = ordinal

    @property
    def size(self) -> int:
        return len(self._rows.text(self._ordinal))

    def read(self, offset: int, length: int) -> bytes:
        return self._rows.text(self._ordinal)[offset : offset + length]

    def read_nowait(self, offset: int, length: int) -> bytes | None:
        text = self._rows.find(self._ordinal)
        return None if text is None else text[offset : offset + length]
