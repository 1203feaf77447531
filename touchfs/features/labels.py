"""Class labels: names in the data, integers in the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.core.errors import ArgumentValueError
from touchfs.core.extras import load_pyarrow
from touchfs.features.base import FeatureType, unwrap_scalar

if TYPE_CHECKING:
    import pyarrow

# The names of up to so many classes are a part of the fingerprint of a cache. Of more, it has the number only.
_SHOWN = 5


class ClassLabel(FeatureType):
    """An int64 that is the position of a name in `names`. With `num_classes` instead, the names are "0", "1" and so on.

    Raises ArgumentValueError if neither is given.
    """

    __slots__ = ("_numbers", "names", "num_classes")

    def __init__(self, names: Sequence[str] | None = None, num_classes: int | None = None) -> None:
        if names is None and num_classes is None:
            raise ArgumentValueError("ClassLabel requires either 'names' or 'num_classes'")
        self.names = [str(number) for number in range(num_classes or 0)] if names is None else list(names)
        self.num_classes = len(self.names)
        self._numbers = {name: number for number, name in enumerate(self.names)}

    def str2int(self, name: str) -> int:
        """Return the integer of a name. Raises ArgumentValueError for an unknown one."""
        try:
            return self._numbers[name]
        except KeyError:
            raise ArgumentValueError(f"{name!r} is not one of the {self.num_classes} names of the label") from None

    def int2str(self, idx: int) -> str:
        """Return the name of an integer. Raises ArgumentValueError if no class has it."""
        if not 0 <= idx < self.num_classes:
            raise ArgumentValueError(f"no class has the number {idx}: there are {self.num_classes}")
        return self.names[idx]

    def to_arrow_type(self) -> pyarrow.DataType:
        return load_pyarrow().int64()

    def encode(self, value: Any, *, cache_dir: Path | None = None) -> Any:
        """Return the integer of a name. An integer stays as it is: that of a class, or -1, as None for no label.

        Raises ArgumentValueError for any other name or number.
        """
        if isinstance(value, str):
            return self.str2int(value)
        number = unwrap_scalar(value)
        if isinstance(number, int | float) and not -1 <= number < self.num_classes:
            raise ArgumentValueError(
                f"no class has the number {number}: there are {self.num_classes}, and a missing label is None or -1"
            )
        return number

    def to_json(self) -> dict[str, Any]:
        """See `FeatureType.to_json`. Labels without names of their own have `num_classes` only."""
        if self.names == [str(number) for number in range(self.num_classes)]:
            return {"type": "ClassLabel", "num_classes": self.num_classes}
        return {"type": "ClassLabel", "names": self.names}

    def __repr__(self) -> str:
        shown = f"names={self.names}" if self.num_classes <= _SHOWN else f"num_classes={self.num_classes}"
        return f"ClassLabel({shown})"
