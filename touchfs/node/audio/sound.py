"""The objects that can be mixed: cuts, which have audio, and samples, whose recording is decoded."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from touchfs.core.errors import UsageError
from touchfs.dataset.recordings.recording import to_float32
from touchfs.dataset.sample import Sample
from touchfs.node.audio.mixing import Audio


class Cut(Protocol):
    """An object that can be mixed."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def audio(self) -> Audio:
        """Floats, of shape (samples,) or (channels, samples)."""

    @property
    def sampling_rate(self) -> int:
        """Samples per second, in Hz."""


@dataclass(frozen=True, eq=False)
class Sound:
    """The decoded recording of a sample, possibly mixed with others.

    `audio` has floats within -1 and 1 before mixing, of shape (samples,) or (channels, samples); `sampling_rate` is in
    Hz. Two sounds are equal if id, sampling rate, sample and audio are.
    """

    id: str
    audio: Audio
    sampling_rate: int
    sample: Sample

    @property
    def duration(self) -> float:
        """Seconds."""
        return int(self.audio.shape[-1]) / self.sampling_rate

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sound):
            return NotImplemented
        alike = (self.id, self.sampling_rate, self.sample) == (other.id, other.sampling_rate, other.sample)
        return alike and np.array_equal(self.audio, other.audio)

    def __hash__(self) -> int:
        return hash((self.id, self.sampling_rate, self.sample))


if TYPE_CHECKING:
    _: type[Cut] = Sound


def with_id(item: Any, new_id: str, **changes: Any) -> Any:
    """Return a copy of a cut, or of any object with an `id`, with another id and other changed attributes."""
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return dataclasses.replace(item, id=new_id, **changes)
    changed = copy.copy(item)
    for name, value in {"id": new_id, **changes}.items():
        setattr(changed, name, value)
    return changed


def as_cut(item: Any) -> Cut:
    """Return the item as a cut; a sample becomes a `Sound`.

    Raises UsageError for other objects, FormatError for a damaged recording.
    """
    if isinstance(item, Sample):
        audio, rate = _decoded(item)
        return Sound(item.key, audio, rate, item)
    # Do not test for `audio`: computing it may be costly.
    if not hasattr(item, "id") or not hasattr(item, "sampling_rate"):
        raise UsageError(
            f"{type(item).__name__} objects cannot be mixed: map them to objects with id, audio and sampling_rate"
        )
    cut: Cut = item
    return cut


def _decoded(sample: Sample) -> tuple[Audio, int]:
    if sample.coding is None:
        raise UsageError(
            "a sample with no recording cannot be mixed: map it to an object with id, audio and sampling_rate",
            key=sample.key,
        )
    frames, rate = sample.decoded()
    return _by_channel(to_float32(frames)), rate


def _by_channel(frames: Audio) -> Audio:
    """Transpose to (channels, samples), or (samples,) for one channel."""
    return frames[:, 0] if frames.shape[1] == 1 else np.ascontiguousarray(frames.T)
