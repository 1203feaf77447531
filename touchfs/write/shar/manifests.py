"""The manifests of Lhotse that stand for data in a Shar, as JSON objects: of type "shar", with no place of their own.

The same placeholder is in the cut's row and beside the data. It tells of what is stored, which is the part that the cut
covers: it starts at 0, lasts as long as the cut, and has the cut's channels.

Source: lhotse/shar/utils.py, lhotse/serialization.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from touchfs.errors import FormatError
from touchfs.write.shar.audio import Shape

Manifest = Mapping[str, Any]

_NOWHERE = {"storage_type": "shar", "storage_path": "", "storage_key": ""}
# Lhotse's order of the names, of which any may be missing where it has no value.
_FEATURES = ("type", "num_frames", "num_features", "frame_shift", "sampling_rate", "start", "duration", *_NOWHERE)


def is_recording(value: object) -> bool:
    return isinstance(value, Mapping) and all(name in value for name in ("id", "sources", "sampling_rate"))


def is_array(value: object) -> bool:
    """Of either kind: with a place in time it has the other inside."""
    if not isinstance(value, Mapping):
        return False
    array = value.get("array", value)
    return isinstance(array, Mapping) and "shape" in array and "storage_type" in array


def recording(manifest: Manifest, duration: float | None, channels: Any = None) -> dict[str, Any]:
    """Without a duration, all of it; without channels, all of them."""
    try:
        if channels is None:
            channels = manifest.get("channel_ids") or sorted(c for s in manifest["sources"] for c in s["channels"])
        elif not isinstance(channels, list):
            channels = [channels]
        if duration is None:
            duration, count = manifest["duration"], manifest["num_samples"]
        else:
            count = num_samples(duration, manifest["sampling_rate"])
    except (KeyError, TypeError, ArithmeticError, ValueError) as error:
        raise FormatError(f"has a manifest that makes no sense: {error!r}") from error
    placeholder = {
        **manifest,
        "sources": [{"type": "shar", "channels": channels, "source": ""}],
        "num_samples": count,
        "duration": duration,
        "channel_ids": channels,
    }
    placeholder.pop("transforms", None)  # they have been done
    return placeholder


def shape(recording: Manifest) -> Shape:
    return Shape(recording["sampling_rate"], len(recording["channel_ids"]), recording["num_samples"])


def new_recording(key: str, shape: Shape) -> dict[str, Any]:
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
    placeholder = {**manifest, "start": 0, "duration": duration, **_NOWHERE}
    return {name: placeholder.pop(name) for name in _FEATURES if name in placeholder} | placeholder


def array(manifest: Manifest) -> dict[str, Any]:
    if "array" in manifest:
        return {**manifest, "array": array(manifest["array"]), "start": 0}
    return {**_NOWHERE, **manifest, **_NOWHERE}


def new_array(shape: tuple[int, ...]) -> dict[str, Any]:
    return {**_NOWHERE, "shape": list(shape)}


def num_samples(duration: float, sampling_rate: int) -> int:
    """A half counts as a whole sample; what is less than a hundred-millionth of one is an error of arithmetic."""
    return int(Decimal(round(duration * sampling_rate, ndigits=8)).quantize(Decimal(0), rounding=ROUND_HALF_UP))
