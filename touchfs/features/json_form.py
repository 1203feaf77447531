"""The JSON form of features: an object with a member for each column, whose `type` names the class.

    {"image": {"type": "Image", "encode_format": "PNG"},
     "label": {"type": "ClassLabel", "names": ["cat", "dog"]},
     "series": {"type": "Sequence", "feature": {"type": "Value", "dtype": "float32"}}}

All other members of a column are the parameters of the class. A parameter that has a default may be left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from touchfs.core.errors import FormatError, TouchfsError
from touchfs.features.arrays import Array3D, Array4D
from touchfs.features.base import FeatureType
from touchfs.features.file import File
from touchfs.features.image import Image
from touchfs.features.labels import ClassLabel
from touchfs.features.sequence import Sequence
from touchfs.features.value import Value
from touchfs.features.video import Video

_NUMBERS = (int,)
_TEXT = (str,)
_LIST = (list,)
# For each type: the class, and its parameters with their JSON types.
_TYPES: Mapping[str, tuple[Callable[..., FeatureType], Mapping[str, tuple[type, ...]]]] = {
    "Value": (Value, {"dtype": _TEXT}),
    "ClassLabel": (ClassLabel, {"names": _LIST, "num_classes": _NUMBERS}),
    "File": (File, {"extension": _TEXT}),
    "Image": (Image, {"encode_format": _TEXT}),
    "Array3D": (Array3D, {"shape": _LIST, "dtype": _TEXT}),
    "Array4D": (Array4D, {"shape": _LIST, "dtype": _TEXT}),
    "Video": (Video, {"storage": _TEXT, "allowed_extensions": _LIST}),
    "Sequence": (Sequence, {"feature": (dict,)}),
}
# Lists of lists of lists …: more than any data has, and far from Python's limit.
_DEPTH_MAX = 64


def parse_features(form: str | Mapping[str, Any]) -> dict[str, FeatureType]:
    """Return the features by column of a JSON form, or of its text. Raises FormatError that names the column."""
    if isinstance(form, str):
        form = _decode(form)
    if not isinstance(form, Mapping):
        raise FormatError("features are not a JSON object of columns")
    return {name: _parse_column(name, member) for name, member in form.items()}


def _decode(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError as error:
        raise FormatError("features are not JSON that can be read: nested too deep") from error
    except ValueError as error:
        raise FormatError(f"features are not JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name is given twice")
    return members


def _parse_column(name: str, form: Any) -> FeatureType:
    try:
        return _parse(form, 0)
    except TouchfsError as error:
        raise FormatError(f"the feature of column {name!r} cannot be read: {error.message}") from error


def _parse(form: Any, depth: int) -> FeatureType:
    if not isinstance(form, Mapping) or not isinstance(form.get("type"), str):
        raise FormatError("it is not an object with a 'type'")
    if form["type"] not in _TYPES:
        raise FormatError(f"its type {form['type']!r} is not one of {', '.join(_TYPES)}")
    if depth > _DEPTH_MAX:
        raise FormatError(f"it is nested more than {_DEPTH_MAX} deep")
    kind, parameters = _TYPES[form["type"]]
    given = {name: value for name, value in form.items() if name != "type"}
    for name, value in given.items():
        if name not in parameters:
            raise FormatError(f"{form['type']} has no {name!r}, only {', '.join(parameters)}")
        if type(value) not in parameters[name] or (name in _ELEMENTS and not _is_list_of(value, _ELEMENTS[name])):
            raise FormatError(f"the value of {name!r} is of another type: {json.dumps(value)[:80]}")
    if kind is Sequence and "feature" in given:
        given["feature"] = _parse(given["feature"], depth + 1)
    try:
        return kind(**given)
    except TypeError as error:  # a parameter without a default is missing
        raise FormatError(f"{form['type']} needs {' and '.join(parameters)}") from error


_ELEMENTS = {"names": str, "shape": int, "allowed_extensions": str}


def _is_list_of(value: list[Any], kind: type) -> bool:
    return all(type(element) is kind for element in value)
