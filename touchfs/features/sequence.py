"""Lists of any length, all of one feature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.core.extras import load_pyarrow
from touchfs.features.base import FeatureType
from touchfs.features.value import Value

if TYPE_CHECKING:
    import pyarrow


class Sequence(FeatureType):
    """A list whose elements are of `feature`. Arrays become lists."""

    __slots__ = ("feature",)

    def __init__(self, feature: FeatureType) -> None:
        self.feature = feature

    def to_arrow_type(self) -> pyarrow.DataType:
        return load_pyarrow().list_(self.feature.to_arrow_type())

    def encode(self, value: Any, *, cache_dir: Path | None = None) -> Any:
        """Return the list of the encoded elements."""
        if value is None:
            return None
        if isinstance(self.feature, Value):
            # A million numbers at once, not one by one.
            return value.tolist() if hasattr(value, "tolist") else list(value)
        return [self.feature.encode(element, cache_dir=cache_dir) for element in value]

    def to_json(self) -> dict[str, Any]:
        return {"type": "Sequence", "feature": self.feature.to_json()}

    def __repr__(self) -> str:
        return f"Sequence({self.feature!r})"
