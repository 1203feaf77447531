"""The base of all feature types: an Arrow type, metadata of the field, and the encoding of a value.

Two features are equal if their JSON forms are. The `repr` of a feature is a part of the fingerprint of caches, so it
never changes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

# Metadata of a field in an Arrow schema: the name of its feature type.
FEATURE_KEY = b"stable_datasets.feature"


def unwrap_scalar(value: Any) -> Any:
    """Return the Python number of a NumPy or torch scalar, or an array of one element; any other value as it is."""
    if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1:
        return value.item()
    return value


class FeatureType:
    """The type of a column. Subclasses say how a value is stored."""

    __slots__ = ()

    def to_arrow_type(self) -> pyarrow.DataType:
        """Return the Arrow type of the column. Raises MissingExtraError without pyarrow."""
        raise NotImplementedError

    def arrow_metadata(self) -> dict[bytes, bytes]:
        """Return the metadata of the column's field in an Arrow schema."""
        return {FEATURE_KEY: type(self).__name__.encode()}

    def encode(self, value: Any, *, cache_dir: Path | None = None) -> Any:
        """Return a value as pyarrow takes it. Files beside the table are put into `cache_dir`."""
        return unwrap_scalar(value)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: an object with `type` and the parameters."""
        raise NotImplementedError

    def fingerprint_data(self) -> str:
        """Return the text of which the fingerprint of a cache is made."""
        return repr(self)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, FeatureType) and other.to_json() == self.to_json()

    def __hash__(self) -> int:
        return hash(repr(self))
