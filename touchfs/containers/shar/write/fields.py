"""The stored form of a cut's field in a Shar: bytes with an extension, and the placeholder that describes them.

    wav flac mp3 opus   a recording in this encoding
    original            a recording in the encoding of its source; its extension is "original"
    numpy               an array as .npy
    lilcom              an array of floats, lossy compression
    jsonl               any value, without a placeholder

Data that is already encoded is stored as it is, if it begins like the expected format.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from touchfs.containers.shar.write import audio as shar_audio
from touchfs.containers.shar.write import manifests as shar_manifests
from touchfs.containers.shar.write.audio import Audio, Shape
from touchfs.containers.shar.write.manifests import Manifest
from touchfs.core.errors import FormatError, MissingExtraError, UsageError
from touchfs.core.extent import Buffer

AUDIO = (*shar_audio.FORMATS, "original")
ARRAY = ("numpy", "lilcom")
VALUE = "jsonl"
KINDS = (*AUDIO, *ARRAY, VALUE)

_EXTENSIONS = {"numpy": "npy", "lilcom": "llc"}
_MAGIC = {"numpy": b"\x93NUMPY", "lilcom": b"L\0"}
# Lhotse's value: rounding in steps of 2**-5.
_LILCOM_TICK_POWER = -5


@dataclass(frozen=True, slots=True)
class FieldData:
    """The stored data of one field, and its placeholder manifest."""

    data: Buffer
    extension: str
    manifest: dict[str, Any]


def check_fields(fields: Mapping[str, str]) -> None:
    """Raise UsageError for a field with an unknown kind or an impossible name."""
    for field, kind in fields.items():
        if kind not in KINDS:
            raise UsageError(f"field {field} cannot be {kind!r}: choose from {', '.join(KINDS)}")
        if not field or field == "cuts" or any(character in field for character in "./\0"):
            raise UsageError(
                f"a field cannot be named {field!r}: its files are, up to the first dot, and cuts are taken"
            )
        for name, kinds in (("recording", AUDIO), ("features", ARRAY)):
            if field == name and kind not in kinds:
                raise UsageError(f"field {field} cannot be {kind!r}: choose from {', '.join(kinds)}")


def store_audio(
    key: str, kind: str, payload: object, manifest: Manifest | None, duration: float | None, channels: Any
) -> FieldData:
    """Encode a recording. `duration` and `channels` are those of the cut, or None. A missing manifest is made."""
    if manifest is not None and not shar_manifests.is_recording(manifest):
        raise FormatError(f"has no manifest of a recording, for the kind {kind}")
    data, shape = _audio(kind, payload, manifest)
    if manifest is None:
        shape = shape or shar_audio.scan(data)
        manifest = shar_manifests.new_recording(key, shape)
    placeholder = shar_manifests.recording(manifest, duration, channels)
    if shape is not None and shape != (expected := shar_manifests.shape(placeholder)):
        raise FormatError(f"has {_describe(shape)}; as its cut says it should have {_describe(expected)}")
    return FieldData(data, kind, placeholder)


def store_array(kind: str, payload: object, manifest: Manifest | None) -> FieldData:
    """Encode an array. A missing manifest is made. Raises FormatError."""
    if manifest is not None and not shar_manifests.is_array(manifest):
        raise FormatError(f"has no manifest of an array, for the kind {kind}: plain values are of the kind {VALUE}")
    data, shape = _array(kind, payload)
    if manifest is not None:
        return FieldData(data, _EXTENSIONS[kind], shar_manifests.array(manifest))
    if shape is None:
        raise FormatError("needs a manifest: compressed data does not contain its shape")
    return FieldData(data, _EXTENSIONS[kind], shar_manifests.new_array(shape))


def store_features(kind: str, payload: object, manifest: Manifest | None, duration: float) -> FieldData:
    """Encode features, whose manifest is required. `duration` is that of the cut. Raises FormatError."""
    if manifest is None:
        raise FormatError("needs a manifest: an array does not define its frames")
    data, _ = _array(kind, payload)
    return FieldData(data, _EXTENSIONS[kind], shar_manifests.features(manifest, duration))


def _audio(kind: str, payload: object, manifest: Manifest | None) -> tuple[Buffer, Shape | None]:
    if isinstance(payload, Buffer):
        if kind != "original":
            shar_audio.check_format(payload, kind)
        return payload, shar_audio.scan(payload) if kind == "wav" else None
    if isinstance(payload, np.ndarray):
        payload = Audio(payload)
    if not isinstance(payload, Audio):
        raise FormatError(f"is neither samples nor bytes but {type(payload).__name__}")
    rate = payload.sampling_rate or (manifest or {}).get("sampling_rate")
    if not isinstance(rate, int) or rate < 1:
        raise FormatError(f"needs a sampling rate in hertz, not {rate}: give Audio(samples, sampling_rate)")
    samples = payload.samples if payload.samples.ndim != 1 else payload.samples[None]
    name = kind if kind != "original" else payload.format or _source_format(manifest)
    data = shar_audio.encode(samples, rate, name)
    channels, count = samples.shape
    return data, Shape(rate, channels, count)


def _source_format(manifest: Manifest | None) -> str:
    """The format of a recording, by the extensions of its source paths.

    Raises FormatError if they are not one format.
    """
    paths = [source.get("source") for source in (manifest or {}).get("sources", ())]
    formats = {os.path.splitext(path)[1][1:].lower() for path in paths if isinstance(path, str)} - {""}
    if len(formats) != 1:
        raise FormatError("has no one original format: give Audio(samples, sampling_rate, format)")
    return formats.pop()


def _array(kind: str, payload: object) -> tuple[Buffer, tuple[int, ...] | None]:
    if isinstance(payload, Buffer):
        if bytes(payload[: len(_MAGIC[kind])]) != _MAGIC[kind]:
            raise FormatError(f"is not {kind}: {bytes(payload[:8])!r}")
        try:
            return payload, np.load(io.BytesIO(payload), allow_pickle=False).shape if kind == "numpy" else None
        except (ValueError, OSError, EOFError) as error:
            raise FormatError(f"is damaged: {error}") from error
    if not isinstance(payload, np.ndarray):
        raise FormatError(f"is neither an array nor bytes but {type(payload).__name__}")
    return _COMPRESS[kind](payload), payload.shape


def _numpy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    try:
        np.save(file, array, allow_pickle=False)
    except ValueError as error:
        raise FormatError(f"cannot be written as .npy: {error}") from error
    return file.getvalue()


def _lilcom(array: NDArray[Any]) -> bytes:
    if array.dtype.kind != "f":
        raise FormatError(f"is {array.dtype.name}, and lilcom is for floats: use numpy")
    try:
        lilcom = import_module("lilcom")  # which has no types
    except ImportError as error:
        raise MissingExtraError(f"lilcom fields are written with lilcom ({error}): pip install lilcom") from error
    data: bytes = lilcom.compress(array, tick_power=_LILCOM_TICK_POWER)
    return data


_COMPRESS: Mapping[str, Callable[[NDArray[Any]], bytes]] = {"numpy": _numpy, "lilcom": _lilcom}


def _describe(shape: Shape) -> str:
    return f"{shape.channels} channels of {shape.num_samples} samples at {shape.sampling_rate} Hz"
