"""Lhotse's manifests that stand for data in a Shar, as JSON objects of the type "shar" without a path.

The same placeholder is in the cut's line and beside the data. It describes the stored data, the part that the cut
covers: it starts at 0, lasts as long as the cut, and has the cut's channels.

Source: lhotse/shar/utils.py, lhotse/serialization.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from touchfs.containers.shar.write.audio import Shape
from touchfs.core.errors import FormatError
from touchfs.format.lhotse import samples_of

Manifest = Mapping[str, Any]

_NOWHERE = {"storage_type": "shar", "storage_path": "", "storage_key": ""}
# Lhotse's order of the names. Any may be missing if it has no value.
_FEATURES = ("type", "num_frames", "num_features", "frame_shift", "sampling_rate", "start", "duration", *_NOWHERE)


def is_recording(value: object) -> bool:
    return isinstance(value, Mapping) and all(name in value for name in ("id", "sources", "sampling_rate"))


def is_array(value: object) -> bool:
    """True if a value is the manifest of an array, either plain or with a time offset, which contains a plain one."""
    if not isinstance(value, Mapping):
        return False
    array = value.get("array", value)
    return isinstance(array, Mapping) and "shape" in array and "storage_type" in array


def recording(manifest: Manifest, duration: float | None, channels: Any = None) -> dict[str, Any]:
    """The placeholder for a recording, cut to `duration` seconds and `channels`; None means all. Raises FormatError."""
    try:
        if channels is None:
            channels = manifest.get("channel_ids") or sorted(c for s in manifest["sources"] for c in s["channels"])
        elif not isinstance(channels, list):
            channels = [channels]
        if duration is None:
            duration, count = manifest["duration"], manifest["num_samples"]
        else:
            count = samples_of(duration, manifest["sampling_rate"])
    except (KeyError, TypeError, ArithmeticError, ValueError) as error:
        raise FormatError(f"has an invalid manifest: {error!r}") from error
    placeholder = {
        **manifest,
        "sources": [{"type": "shar", "channels": channels, "source": ""}],
        "num_samples": count,
        "duration": duration,
        "channel_ids": channels,
    }
    placeholder.pop("transforms", None)  # already applied to the data
    return placeholder


def shape(recording: Manifest) -> Shape:
    return Shape(recording["sampling_rate"], len(recording["channel_ids"]), recording["num_samples"])


def new_recording(key: str, shape: Shape) -> dict[str, Any]:
    """A placeholder for a recording without a manifest."""
    channels = list(range(shape.channels))
    return {
        "id": key,
        "sources": [{"type": "shar", "channels": channels, "source": ""}],
        "sampling_rate": shape.sampling_rate,
        "num_samples": shape.num_samples,
        "duration": shape.num_samples / shape.sampling_rate,
        "channel_ids": channels,
    }


def features(manifest: Manifest, duration: float) -> dict[str, Any]:
    """The placeholder for features, in Lhotse's order of names."""
    placeholder = {**manifest, "start": 0, "duration": duration, **_NOWHERE}
    return {name: placeholder.pop(name) for name in _FEATURES if name in placeholder} | placeholder


def array(manifest: Manifest) -> dict[str, Any]:
    """The placeholder for an array, or for an array with a time offset."""
    if "array" in manifest:
        return {**manifest, "array": array(manifest["array"]), "start": 0}
    return {**_NOWHERE, **manifest, **_NOWHERE}


def new_array(shape: tuple[int, ...]) -> dict[str, Any]:
    """A placeholder for an array without a manifest."""
    return {**_NOWHERE, "shape": list(shape)}
