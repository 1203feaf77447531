"""A cut of Lhotse's as the JSON object of a manifest, and the data of its fields, as Lhotse loads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from touchfs.errors import FormatError
from touchfs.write.shar.audio import Audio
from touchfs.write.shar.cut import custom_fields, cut_id
from touchfs.write.shar.fields import VALUE
from touchfs.write.shar.manifests import is_array, is_recording


def unload(cut: Any, fields: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON object of a cut, which contains plain values, and the loaded data by field. Raises FormatError."""
    if not hasattr(cut, "to_dict"):
        raise FormatError(f"a cut is an object as of JSON, or one of Lhotse's, not {type(cut).__name__}")
    row: dict[str, Any] = cut.to_dict()
    key = cut_id(row)
    custom = custom_fields(row)
    payloads: dict[str, Any] = {}
    for field, kind in fields.items():
        if field == "recording":
            if field in row:
                payloads[field] = Audio(cut.load_audio(), cut.sampling_rate, _format(cut.recording, kind))
        elif field == "features":
            if field in row:
                payloads[field] = cut.load_features()
        elif kind != VALUE and field in custom:
            if is_recording(custom[field]):
                recording = cut.custom[field]
                payloads[field] = Audio(cut.load_custom(field), recording.sampling_rate, _format(recording, kind))
            elif is_array(custom[field]):
                payloads[field] = cut.load_custom(field)
            else:
                raise FormatError(f"field {field}: is not data, so it cannot be {kind}: use {VALUE}", key=key)
    return row, payloads


def _format(recording: Any, kind: str) -> str | None:
    return recording.source_format if kind == "original" else None
