"""What can be mixed: objects with audio, or samples, whose recording is decoded.

PCM in a WAV is decoded by itself, all else by libsndfile.
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

# Extensions of a sample's recording. Other fields have their name before these.
RECORDINGS = ("wav", "flac", "mp3", "ogg", "opus", "original")


class Cut(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def audio(self) -> Audio:
        """Floats, of shape (samples,) or (channels, samples)."""

    @property
    def sampling_rate(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Sound:
    """The recording of a sample, within -1 and 1, by itself or mixed with others. Two are equal if they sound alike."""

    id: str
    audio: Audio
    sampling_rate: int
    sample: Sample

    @property
    def duration(self) -> float:
        return int(self.audio.shape[-1]) / self.sampling_rate

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sound):
            return NotImplemented
        told = (self.id, self.sampling_rate, self.sample) == (other.id, other.sampling_rate, other.sample)
        return told and np.array_equal(self.audio, other.audio)

    def __hash__(self) -> int:
        return hash((self.id, self.sampling_rate, self.sample))


if TYPE_CHECKING:
    _: type[Cut] = Sound


def with_id(item: Any, new_id: str, **changes: Any) -> Any:
    """A copy of a cut, or of anything else with an `id`, with another one."""
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return dataclasses.replace(item, id=new_id, **changes)
    changed = copy.copy(item)
    for name, value in {"id": new_id, **changes}.items():
        setattr(changed, name, value)
    return changed


def as_cut(item: Any) -> Cut:
    if isinstance(item, Sample):
        audio, rate = _decoded(item)
        return Sound(item.key, audio, rate, item)
    # The audio itself may be costly to ask for.
    if not hasattr(item, "id") or not hasattr(item, "sampling_rate"):
        raise UsageError(
            f"{type(item).__name__} objects cannot be mixed: map them to objects with id, audio and sampling_rate"
        )
    cut: Cut = item
    return cut


def _decoded(sample: Sample) -> tuple[Audio, int]:
    names = [name for name in RECORDINGS if name in sample]
    if len(names) != 1:
        told = f"recordings {' and '.join(names)}" if names else "no recording"
        raise UsageError(
            f"a sample with {told} cannot be mixed: map it to an object with id, audio and sampling_rate",
            key=sample.key,
        )
    data = sample[names[0]]
    try:
        return _pcm(data) if names[0] == "wav" else _by_libsndfile(data)
    except FormatError as error:
        raise FormatError(error.message, offset=error.offset, key=sample.key) from error


def _pcm(data: bytes) -> tuple[Audio, int]:
    told = drive(wav.scan(len(data)), Memory(data))
    if told.codec != wav.PCM or told.bits != 16:
        return _by_libsndfile(data)
    frames = told.data_size // (2 * told.channels)
    pcm = np.frombuffer(data, "<i2", frames * told.channels, told.data_offset)
    return _by_channel((pcm / np.float32(1 << 15)).reshape(frames, told.channels)), told.rate


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
    """Of one channel without it."""
    return frames[:, 0] if frames.shape[1] == 1 else np.ascontiguousarray(frames.T)
