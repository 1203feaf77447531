"""A stored sample: one training example of a shard, with a key and named fields.

A field holds no bytes, only their location (`source`, a file of the shard; `offset`, `size`) and their form
(`touchfs.form`). A file's content is computed from these, so creating a sample costs no IO.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from touchfs.form.base import Form
from touchfs.form.beside import WHOLE, Beside, pcm_of, piece_of, span_of
from touchfs.form.plain import BYTES
from touchfs.form.recordings import Decoded, Pcm, piece_detail
from touchfs.form.unmeasured import Unmeasured
from touchfs.form.video.video_span import VideoSpan
from touchfs.format.metainfo import Metainfo
from touchfs.media.duration import AudioInfo
from touchfs.media.extensions import can_be_cut, is_video, recordings_among
from touchfs.segments.packed_times import pack_times, seconds_of
from touchfs.segments.segment import Segment, Spanned
from touchfs.segments.times import Times
from touchfs.source.fingerprint import Files

NO_METAINFO = Metainfo(key=None, text=None, rate=None, fields={})


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a stored sample. `offset` and `size` are bytes in the shard's file `source`.

    `extension` has no dot; None means no extension, and "" a trailing dot. `note` says why the field does not have a
    better form; it is shown as `user.touchfs.reason`. `detail` has the parameters of a form that needs more than a byte
    range and that differ from field to field. `written` is the extension in its file's name, if that is another.
    """

    name: str
    source: str
    offset: int
    size: int
    form: Form
    extension: str | None
    note: str = ""
    detail: bytes = b""
    written: str | None = None


class SegmentAudio(NamedTuple):
    """A part of a recording: the field that shows it as a WAV, what its `.json` says about it, and the `problem` of its
    times, None if there is none.
    """

    field: Field
    facts: dict[str, Any]
    problem: str | None


@dataclass(frozen=True, slots=True)
class StoredRecording:
    """The recording that segments are cut from: `length` samples per channel at `rate` Hz, PCM or coded.

    `sample_format` is that of the files of its pieces: that of PCM and FLAC, s16 for lossy codings.
    """

    field: Field
    rate: int
    channels: int
    length: int
    sample_format: str = "s16"

    @classmethod
    def of(cls, field: Field) -> StoredRecording | None:
        """A field of PCM as a recording; None for other fields."""
        form = field.form
        if not isinstance(form, Pcm):
            return None
        return cls(field, form.rate, form.channels, field.size // form.frame_size, form.sample_format)

    @classmethod
    def measured(cls, field: Field, audio: AudioInfo) -> StoredRecording:
        """A field whose bytes are a recording of this format."""
        if audio.pcm:
            form = Pcm(audio.rate, audio.channels, audio.sample_format)
            start, size = field.offset + audio.pcm, audio.frames * form.frame_size
            own, detail = pcm_of(form, field.detail, audio.pcm) if field.form is WHOLE else (form, b"")
            field = replace(field, offset=start, size=size, form=own, extension="wav", detail=detail)
        return cls(field, audio.rate, audio.channels, audio.frames, audio.sample_format)

    def piece(self, first: int, length: int, note: str = "") -> Field:
        """A field with `length` samples of the recording, beginning at sample `first`, as a WAV."""
        form, offset, size, detail = self.field.form, self.field.offset, self.field.size, b""
        if isinstance(form, Beside):
            form, detail = piece_of(form, self._decoded, self.field.detail, first, length)
            _, _, offset, size, _ = form.place(detail)
        elif isinstance(form, Pcm):
            offset, size = offset + first * form.frame_size, length * form.frame_size
        else:
            form, detail = self._decoded, piece_detail(first, length)
        return Field(self.field.name, self.field.source, offset, size, form, "wav", note, detail)

    @property
    def _decoded(self) -> Decoded:
        return Decoded(self.rate, self.channels, self.sample_format)

    def cut(self, times: Spanned, note: str) -> SegmentAudio:
        """The samples of a segment with these times."""
        first, length, problem = times.span(self.rate, self.length)
        facts = {"sample_rate": self.rate, "offset": first, "length": length}
        return SegmentAudio(self.piece(first, length, note if problem else ""), facts, problem)


@dataclass(frozen=True, slots=True)
class UnmeasuredRecording:
    """The recording that segments are cut from, if neither its header nor its shard has its rate and length.

    They are found when a piece is read.
    """

    field: Field

    @classmethod
    def first(cls, fields: Iterable[Field]) -> UnmeasuredRecording | None:
        """The field that is the recording by its extension, of those whose coding can be cut."""
        can = [each for each in fields if each.form in (BYTES, WHOLE) and can_be_cut(each.extension)]
        found = {each.extension or "": each for each in can}
        return next((cls(found[extension]) for extension in recordings_among(found)), None)

    def cut(self, times: Spanned, note: str) -> SegmentAudio:
        """The part of the recording of a segment with these times."""
        facts, problem = seconds_of(times)
        form, detail = Unmeasured(), pack_times(times)
        own, detail = span_of(form, self.field.detail, detail) if self.field.form is WHOLE else (form, detail)
        field = replace(self.field, form=own, extension="wav", note=note if problem else "", detail=detail)
        return SegmentAudio(field, facts, problem)


Recording = StoredRecording | UnmeasuredRecording


def video_piece(video: Field, recording: Recording | None, times: Spanned, note: str) -> Field:
    """The part of a video of a segment with these times, whose samples are those of the recording, as an MP4."""
    if isinstance(recording, StoredRecording) and isinstance(times, Times) and times.in_samples:
        first, length, _ = times.span(recording.rate, recording.length)
        times = Times(first / recording.rate, (first + length) / recording.rate)
    form, detail = VideoSpan(), pack_times(times)
    own, detail = span_of(form, video.detail, detail) if video.form is WHOLE else (form, detail)
    return replace(video, form=own, extension="mp4", note=note, detail=detail)


class SampleSegments(NamedTuple):
    """The segments of a sample, the name of the rule that found them, and the field of the sample that has them."""

    field: Field
    rule: str
    segments: Sequence[Segment]


class _WithOrigin:
    """A slot for the token that an iterator attaches to a sample. It is not a dataclass field, so it is never saved."""

    __slots__ = ("_graph_origin",)


@dataclass(frozen=True, slots=True)
class StoredSample(_WithOrigin):
    """A sample as it is stored in a shard.

    `key` is never empty: a sample without a key (`is_keyed` is False) is named by its ordinal, as `00000012`.
    `metainfo` is parsed from the field `metainfo_field`, and is `NO_METAINFO` if it was not. `problem` describes the
    damage of a sample in a damaged shard; its `fields` can be served nevertheless. If `recording` is None, the
    recording is the first PCM field. `listed` are the segments that a list gives the sample, if nothing else has some.
    """

    key: str
    ordinal: int
    fields: Mapping[str, Field]
    metainfo: Metainfo = field(default=NO_METAINFO)
    problem: str = ""
    metainfo_field: str = "metainfo"
    is_keyed: bool = True
    recording: Recording | None = None
    listed: SampleSegments | None = None


class SampleRun(NamedTuple):
    """Consecutive samples whose files differ only in their place. They have no recording, segments or problem.

    `first` is the ordinal of the first one. `keys` are None for samples without a key. `fields` are the files of each,
    whose offset and size mean nothing: `spans` has those in bytes, an int64 array of shape (samples, files, 2).
    """

    first: int
    keys: Sequence[str | None]
    fields: Sequence[Field]
    spans: NDArray[np.int64]


def video_in(sample: StoredSample) -> Field | None:
    """The field of a sample that is a video by its extension, the first of several; None if there is none."""
    return next((f for f in sample.fields.values() if f.form in (BYTES, WHOLE) and is_video(f.extension)), None)


def recording_in(sample: StoredSample) -> Recording | None:
    """The recording of a sample: `sample.recording`, else its first field of PCM; None if there is none."""
    if sample.recording is not None:
        return sample.recording
    for stored in sample.fields.values():
        if isinstance(stored.form, Pcm):
            return StoredRecording.of(stored)
    return None


class StoredSamples(Sequence[StoredSample]):
    """Base class for the samples of a shard. Subclasses define `__len__` and `sample`.

    `regrouped` is the number of files that once were in other samples.
    """

    regrouped: int = 0

    @property
    def remarks(self) -> Sequence[str]:
        """Warnings for the user about samples that can all be shown, one line each."""
        return ()

    @property
    def others(self) -> Iterable[tuple[str, Field]]:
        """Files that are shown and belong to no sample, with their paths."""
        return ()

    @abstractmethod
    def sample(self, ordinal: int) -> StoredSample:
        """Return the sample at an ordinal, which must be in `range(len(self))`."""

    @overload
    def __getitem__(self, ordinal: int) -> StoredSample: ...

    @overload
    def __getitem__(self, ordinal: slice) -> list[StoredSample]: ...

    def __getitem__(self, ordinal: int | slice) -> StoredSample | list[StoredSample]:
        count = len(self)
        if isinstance(ordinal, slice):
            return [self.sample(i) for i in range(*ordinal.indices(count))]
        if not -count <= ordinal < count:
            raise IndexError(f"sample {ordinal} of {count}")
        return self.sample(ordinal % count)

    def samples(self, ordinals: range) -> Iterator[StoredSample]:
        return map(self.sample, ordinals)

    def runs(self, ordinals: range) -> Iterator[StoredSample | SampleRun]:
        """Yield the samples at consecutive ordinals, in order; those that are alike together, where that is known."""
        return self.samples(ordinals)

    def __iter__(self) -> Iterator[StoredSample]:
        return self.samples(range(len(self)))


class ShardReader(Protocol):
    """An open shard: a sequence of samples, over files by name."""

    @property
    def files(self) -> Files:
        """The fingerprint of each file, by name."""
        ...

    @property
    def size(self) -> int:
        """Bytes of data, without indexes."""
        ...

    @property
    def index_size(self) -> int:
        """Bytes of the native indexes."""
        ...

    @property
    def problems(self) -> Sequence[str]:
        """Parts of the shard that cannot be shown, one line each; problems of samples are not repeated here."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """Oddities that do not keep anything from being shown, one line each."""
        ...

    @property
    def others(self) -> Iterable[tuple[str, Field]]:
        """Files that are shown and belong to no sample, with their paths."""
        ...

    @property
    def regrouped(self) -> int:
        """The number of files that once were in other samples."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[StoredSample]: ...

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal of the shard."""
        ...

    def samples(self, ordinals: range) -> Iterator[StoredSample]:
        """The samples at consecutive ordinals, in order."""
        ...

    def runs(self, ordinals: range) -> Iterator[StoredSample | SampleRun]:
        """The samples at consecutive ordinals, in order; those that are alike together, where that is known."""
        ...

    def close(self) -> None:
        """Close the files."""
        ...
