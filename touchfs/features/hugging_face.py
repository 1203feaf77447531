"""Features in the metadata of a schema, where Hugging Face's `datasets` puts them.

The metadata has a key `huggingface` with JSON: `{"info": {"features": {column: {"_type": …}}}}`. A list is an array of
one feature, or `_type` Sequence, List or LargeList; a struct is an object without `_type`.

Source: datasets/features/features.py, datasets/arrow_writer.py of version 5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from touchfs.core.errors import FormatError, TouchfsError
from touchfs.features.arrays import Array3D, Array4D
from touchfs.features.base import FeatureType
from touchfs.features.image import Image
from touchfs.features.labels import ClassLabel
from touchfs.features.sequence import Sequence
from touchfs.features.value import DTYPES, Value

_KEY = "huggingface"
_LISTS = frozenset({"Sequence", "List", "LargeList"})
_ARRAYS = {"Array3D": Array3D, "Array4D": Array4D}
_DTYPES = {"large_string": "string", "large_binary": "binary", "double": "float64", "float": "float32"}
_DEPTH_MAX = 64


def features_of_schema(
    metadata: Mapping[bytes, bytes] | Mapping[str, str] | None,
) -> dict[str, FeatureType] | None:
    """Return the features by column of a schema's metadata, without columns of other types; None if it has no features.

    Raises FormatError if they cannot be read.
    """
    text = next((value for key, value in (metadata or {}).items() if key in (_KEY, _KEY.encode())), None)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the schema's metadata {_KEY!r} is not JSON that can be read") from error
    try:
        columns = value["info"]["features"]
    except (KeyError, TypeError):
        return None
    if not isinstance(columns, dict):
        return None
    found = {name: _feature(form, 0) for name, form in columns.items()}
    return {name: feature for name, feature in found.items() if feature is not None}


def schema_metadata(features: Mapping[str, FeatureType]) -> dict[bytes, bytes]:
    """Return the metadata of a schema that `features_of_schema` reads, without types that `datasets` does not have."""
    columns = {name: form for name, feature in features.items() if (form := _form(feature)) is not None}
    return {_KEY.encode(): json.dumps({"info": {"features": columns}}).encode()} if columns else {}


def _form(feature: FeatureType) -> dict[str, Any] | None:
    if isinstance(feature, Value):
        return {"dtype": feature.dtype, "_type": "Value"}
    if isinstance(feature, ClassLabel):
        return {"names": list(feature.names), "_type": "ClassLabel"}
    if isinstance(feature, Image):
        return {"_type": "Image"}
    if isinstance(feature, Array3D | Array4D):
        return {"shape": list(feature.shape), "dtype": feature.dtype, "_type": type(feature).__name__}
    inner = _form(feature.feature) if isinstance(feature, Sequence) else None
    return None if inner is None else {"feature": inner, "_type": "Sequence"}


def _feature(form: Any, depth: int) -> FeatureType | None:
    """Return the feature of a column; None if it is of a type that is not ours."""
    if depth > _DEPTH_MAX:
        return None
    if isinstance(form, list) and len(form) == 1:
        return _list_of(form[0], depth)
    if not isinstance(form, dict):
        return None
    kind = form.get("_type")
    if isinstance(kind, str) and kind in _LISTS:
        return _list_of(form.get("feature"), depth)
    try:
        return _scalar(kind, form)
    except (TouchfsError, TypeError, ValueError):  # a version of `datasets` that we do not know: as a type not ours
        return None


def _list_of(form: Any, depth: int) -> FeatureType | None:
    inner = _feature(form, depth + 1)
    return None if inner is None else Sequence(inner)


def _scalar(kind: Any, form: dict[str, Any]) -> FeatureType | None:
    if kind == "Value":
        dtype = _DTYPES.get(form["dtype"], form["dtype"]) if isinstance(form.get("dtype"), str) else None
        return Value(dtype) if dtype in DTYPES else None
    if kind == "ClassLabel":
        return ClassLabel(names=form.get("names"), num_classes=form.get("num_classes"))
    if kind == "Image":
        return Image()
    if kind in _ARRAYS:
        return _ARRAYS[kind](form["shape"], form.get("dtype", "uint8"))
    return None
