"""The objects that can be mixed: cuts, which have audio, and samples, whose recording is decoded.

PCM of 16 bits in a WAV is decoded here, every other format by libsndfile.
"""

from __future__ import annotations

import copy
import dataclasses
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from touchfs.dataset.sample import Sample
from touchfs.errors import FormatError, MissingExtraError, UsageError
from touchfs.extent import Memory
from touchfs.format import wav
from touchfs.limits import LIMITS
from touchfs.node.audio.mixing import Audio
from touchfs.source.drive import drive

# The extensions of a sample's recording. Other audio fields have a name before the extension.
RECORDINGS = ("wav", "flac", "mp3", "ogg", "opus", "original")


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
    names = [name for name in RECORDINGS if name in sample]
    if len(names) != 1:
        found = f"recordings {' and '.join(names)}" if names else "no recording"
        raise UsageError(
            f"a sample with {found} cannot be mixed: map it to an object with id, audio and sampling_rate",
            key=sample.key,
        )
    data = sample[names[0]]
    try:
        return _pcm(data) if names[0] == "wav" else _by_libsndfile(data)
    except FormatError as error:
        raise FormatError(error.message, offset=error.offset, key=sample.key) from error


def _pcm(data: bytes) -> tuple[Audio, int]:
    header = drive(wav.scan(len(data)), Memory(data))
    if header.codec != wav.PCM or header.bits != 16:
        return _by_libsndfile(data)
    frames = header.data_size // (2 * header.channels)
    pcm = np.frombuffer(data, "<i2", frames * header.channels, header.data_offset)
    return _by_channel((pcm / np.float32(1 << 15)).reshape(frames, header.channels)), header.rate


def _by_libsndfile(data: bytes) -> tuple[Audio, int]:
    try:
        import soundfile
    except ImportError as error:
        raise MissingExtraError("decoding recordings needs the media extra: pip install 'touchfs[media]'") from error
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.frames * file.channels * np.dtype("f4").itemsize > LIMITS.decoded:
                problem = f"decoded it has over {LIMITS.decoded:,} bytes: map it to an object with audio of your own"
                raise FormatError(problem)
            frames, rate = file.read(dtype="float32", always_2d=True), file.samplerate
    except soundfile.LibsndfileError as error:
        raise FormatError(f"the recording cannot be decoded: {error.error_string}") from error
    return _by_channel(frames), int(rate)


def _by_channel(frames: Audio) -> Audio:
    """Transpose to (channels, samples), or (samples,) for one channel."""
    return frames[:, 0] if frames.shape[1] == 1 else np.ascontiguousarray(frames.T)
