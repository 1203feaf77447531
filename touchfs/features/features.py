"""The features of a table: an ordered dict from the names of its columns to their feature types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from touchfs.core.errors import ArgumentTypeError
from touchfs.core.extras import load_pyarrow
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
        return pa.schema(
            pa.field(name, feature.to_arrow_type(), metadata=feature.arrow_metadata())
            for name, feature in Features.of(self).items()
        )

    def fingerprint_data(self) -> str:
        """Return the text of which the fingerprint of a cache is made: the `repr` of a dict."""
        return repr(dict(self))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form (docs/caches.md), for `json.dumps`."""
        return {name: feature.to_json() for name, feature in self.items()}

    @classmethod
    def of(cls, given: Mapping[str, FeatureType]) -> Features:
        """Return features as they are, and a plain mapping as features. Raises ArgumentTypeError for anything else."""
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise ArgumentTypeError(f"features are a mapping from names of columns to feature types, not {kind}")
        for name, feature in given.items():
            if not isinstance(feature, FeatureType):
                kind = type(feature).__name__
                raise ArgumentTypeError(
                    f"Feature '{name}' must be a FeatureType, got {kind}: take one of the types of touchfs.cache"
                )
        return given if isinstance(given, cls) else cls(given)

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
