"""A cut as a Shar stores it: its line, with placeholders for data, and the stored data of each field.

Only the part of the data that the cut covers is stored, so the cut in the line starts at 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from touchfs.containers.lines.writer import json_line
from touchfs.containers.shar.write.audio import Audio
from touchfs.containers.shar.write.fields import AUDIO, VALUE, FieldData, store_array, store_audio, store_features
from touchfs.containers.shar.write.manifests import is_array, is_recording
from touchfs.core.errors import FormatError, TouchfsError, UsageError
from touchfs.core.extent import Buffer

CUTS = "cuts"

_TYPES = ("MonoCut", "MultiCut")
_OWN_FIELDS = ("recording", "features")  # all other fields are in "custom"
_MISSING: Mapping[str, Buffer] = {"nodata": b"", "nometa": b""}


def cut_id(cut: Mapping[str, Any]) -> str:
    """The id of a cut. Raises FormatError if it has none, or cannot be stored."""
    key = cut.get("id")
    if not isinstance(key, str) or not key:
        raise FormatError(f"a cut needs an id, which is a text, not {key!r}")
    if cut.get("type", _TYPES[0]) not in _TYPES:
        raise FormatError(f"a {cut['type']} cannot be stored: make it a MonoCut or a MultiCut", key=key)
    return key


def custom_fields(cut: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object "custom" of a cut, empty if it has none. Raises FormatError for any other value."""
    custom = cut.get("custom") or {}
    if not isinstance(custom, Mapping):
        raise FormatError(f'"custom" of cut {cut.get("id")!r} is not an object but {custom!r}')
    return custom


def unstored(cut: Mapping[str, Any], fields: Mapping[str, str]) -> Iterator[str]:
    """The names of a cut's data for which there is no field."""
    data = [name for name in _OWN_FIELDS if cut.get(name) is not None]
    data += [name for name, value in custom_fields(cut).items() if is_recording(value) or is_array(value)]
    return (name for name in data if name not in fields)


def store_cut(
    cut: Mapping[str, Any], fields: Mapping[str, str], payloads: Mapping[str, Any]
) -> dict[str, bytes | Mapping[str, Buffer]]:
    """The data to add to each file, by field or CUTS: a line, or the members of a tar by extension.

    Raises FormatError, with the field in its message, and UsageError for a payload without a field.
    """
    key = cut_id(cut)
    if unknown := payloads.keys() - fields.keys():
        raise UsageError(f"no field {', '.join(sorted(unknown))}: there are {', '.join(fields)}", key=key)
    row = {name: value for name, value in cut.items() if value is not None}
    custom = dict(custom_fields(cut))
    stored: dict[str, bytes | Mapping[str, Buffer]] = {}
    prefix = ""
    try:
        # The recording first: the cut's duration may come from it.
        for field in sorted(fields, key=lambda field: field != "recording"):
            prefix = f"field {field}: "
            if fields[field] == VALUE:
                stored[field] = _value(key, field, custom, payloads)
            else:
                stored[field] = _members(_data(row, custom, field, fields[field], payloads.get(field)))
        prefix = ""
        stored[CUTS] = _line(row, custom)
    except TouchfsError as error:
        raise type(error)(prefix + error.message, key=key) from error
    return stored


def _line(row: dict[str, Any], custom: dict[str, Any]) -> bytes:
    if not isinstance(row.get("duration"), int | float):
        raise FormatError("a cut needs a duration, in seconds")
    channel = row.setdefault("channel", 0)
    row["start"] = 0
    row.setdefault("supervisions", [])
    if custom or "custom" in row:
        row["custom"] = custom
    row.setdefault("type", _TYPES[isinstance(channel, list)])
    return json_line(row)


def _members(stored: FieldData | None) -> Mapping[str, Buffer]:
    if stored is None:
        return _MISSING
    return {stored.extension: stored.data, "json": json_line(stored.manifest, ascii_only=True)}


def _value(key: str, field: str, custom: Mapping[str, Any], payloads: Mapping[str, Any]) -> bytes:
    if field in payloads:
        line = {} if payloads[field] is None else {field: payloads[field]}
    else:
        line = {field: custom[field]} if field in custom else {}
    if is_recording(line.get(field)) or is_array(line.get(field)):
        raise FormatError(f"is the manifest of data, which cannot be of the kind {VALUE}")
    return json_line({"cut_id": key, **line})


def _data(row: dict[str, Any], custom: dict[str, Any], field: str, kind: str, payload: object) -> FieldData | None:
    """Store the data of a field, and put its placeholder into the row or its custom fields.

    None if there is no data.
    """
    place = row if field in _OWN_FIELDS else custom
    manifest = place.get(field)
    if payload is None:
        if manifest is not None:
            raise FormatError("the cut has it, but no data came with it: give some, or take it out of the cut")
        return None
    if field == "recording":
        stored = store_audio(row["id"], kind, payload, manifest, row.get("duration"), row.get("channel"))
        row.setdefault("duration", stored.manifest["duration"])
        channels = stored.manifest["channel_ids"]
        row.setdefault("channel", channels if len(channels) > 1 else channels[0])
    elif field == "features":
        if "duration" not in row:
            raise FormatError("they need the cut's duration")
        stored = store_features(kind, payload, manifest, row["duration"])
    elif kind in AUDIO:
        # Lhotse assumes that a custom recording is as long as its cut, unless it is marked as unaligned.
        duration = None if custom.get(f"{field}_unaligned") else row.get("duration")
        stored = store_audio(row["id"], kind, payload, manifest, duration, custom.get(f"{field}_channel_selector"))
    else:
        stored = store_array(kind, payload, manifest)
    if place is custom:
        custom.pop(f"{field}_channel_selector", None)
    place[field] = stored.manifest
    return stored


def unload(cut: Any, fields: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON object of a cut of Lhotse's, which contains plain values, and its data by field, as Lhotse loads it.

    Raises FormatError.
    """
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
