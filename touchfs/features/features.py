"""The features of a table: an ordered dict from the names of its columns to their feature types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from touchfs.errors import ArgumentTypeError
from touchfs.extras import load_pyarrow
from touchfs.features.base import FeatureType
from touchfs.features.hugging_face import features_of_schema
from touchfs.features.json_form import parse_features

if TYPE_CHECKING:
    import pyarrow


class Features(dict[str, FeatureType]):
    """Feature types by the names of columns, in the order of the columns."""

    def to_arrow_schema(self) -> pyarrow.Schema:
        """Return the Arrow schema, whose fields have the feature types as metadata.

        Raises ArgumentTypeError if a value is not a FeatureType, and MissingExtraError without pyarrow.
        """
        pa = load_pyarrow()
        fields = []
        for name, feature in self.items():
            if not isinstance(feature, FeatureType):
                raise ArgumentTypeError(f"Feature '{name}' must be a FeatureType, got {type(feature).__name__}")
            fields.append(pa.field(name, feature.to_arrow_type(), metadata=feature.arrow_metadata()))
        return pa.schema(fields)

    def fingerprint_data(self) -> str:
        """Return the text of which the fingerprint of a cache is made: the `repr` of a dict."""
        return repr(dict(self))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form (docs/caches.md), for `json.dumps`."""
        return {name: feature.to_json() for name, feature in self.items()}

    @classmethod
    def from_json(cls, form: str | Mapping[str, Any]) -> Features:
        """Return the features of a JSON form, or of its text. Raises FormatError."""
        return cls(parse_features(form))

    @classmethod
    def from_huggingface(cls, metadata: Mapping[bytes, bytes] | Mapping[str, str] | None) -> Features | None:
        """Return the features that Hugging Face's `datasets` puts into the metadata of a schema; None without them.

        Columns of types that are not ours (audio, structs, times) are left out. Raises FormatError.
        """
        found = features_of_schema(metadata)
        return None if found is None else cls(found)
