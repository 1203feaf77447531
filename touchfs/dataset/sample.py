"""A sample as the files that a view shows: a mapping from extensions to bytes, which are read on access.

    sample["wav"]            the bytes of its .wav
    sample.content("wav")    the same as a content, with a size and random access
    sample.image()           its image, as Pillow decodes it
    sample.audio()           its recording, decoded, and the sampling rate
    sample.video()           the frames of its video
    sample.array()           the elements of its .npy or .npz, such as tokens
    sample.text, sample.json()   its transcript, and its parsed .json, which may be compressed (`txt.gz`, `json.zst`)
    sample.extent("wav")     where it is stored, if that is a plain range of a file
    sample.path("wav")       its path in a mount, relative to the root
    "txt" in sample          whether it has a .txt; nothing is read

Two samples are equal if they are the same sample of the same view, whatever their bytes are.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from touchfs.core.errors import DecodeLimitError, FormatError, NotFoundError, TouchfsError, UsageError
from touchfs.core.extent import Content, Memory, drive
from touchfs.core.json_text import parse_json
from touchfs.core.names import REPORT, ROW_JSON, TOKEN_BOUNDS, is_overlay_row
from touchfs.dataset.recordings.recording import decode, to_float32, to_int16
from touchfs.dataset.sample_file import MadeFile, SampleFile, no_path, path_or_none, plain_range_of
from touchfs.form.compressed_content import plain_extension, read_plain, with_compressed
from touchfs.limits import LIMITS
from touchfs.media.duration import AudioInfo, scan
from touchfs.media.extensions import coding_of, has_header, is_image, is_video, recordings_among
from touchfs.media.file_arrays import decoded_image, npy_array, npz_array, pcm_of_wav
from touchfs.source.store import PlainRange

if TYPE_CHECKING:
    from PIL.Image import Image

    from touchfs.explore.page import ShownSegments
    from touchfs.form.video.decoded_frames import VideoFrames
    from touchfs.form.video.frames import FramesOf

# The extensions of the JSON of a sample.
JSON_NAMES = ("json", ROW_JSON)


class Sample(Mapping[str, bytes]):
    """One sample of a `view`, or one segment of it.

    `ordinal` is its position in its shard, from 0. `number` distinguishes segments of one sample. `shar_epoch` is the
    epoch of a sample from a Lhotse Shar, else None. A pickled sample contains the bytes of all its files.
    """

    __slots__ = ("_graph_origin", "number", "ordinal", "shar_epoch", "view")

    def __init__(self, view: str, ordinal: int, number: int, shar_epoch: int | None) -> None:
        self.view = view
        self.ordinal = ordinal
        self.number = number
        self.shar_epoch = shar_epoch
        self._graph_origin = None

    @property
    @abstractmethod
    def shard(self) -> str:
        """The name of its shard."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The key; its ordinal with 8 digits if it has none of its own."""

    @abstractmethod
    def file(self, extension: str) -> SampleFile:
        """The file with an extension. Raises KeyError."""

    def __getitem__(self, extension: str) -> bytes:
        try:
            return self._read(extension)
        except KeyError:
            raise KeyError(self.missing(extension).message) from None
        except FormatError as error:
            error.of(self.key)
            raise

    def _read(self, extension: str) -> bytes:
        content = self.file(extension).content()
        return bytes(content.read(0, content.size))

    def __bool__(self) -> bool:
        return True

    @property
    def fields(self) -> dict[str, str]:
        """The name of the field from which each file is made, by extension."""
        return {extension: self.file(extension).field for extension in self}

    def only(self, fields: Collection[str]) -> MadeSample:
        """The same sample with only the files that are made from these fields."""
        files = {name: self.file(name) for name, field in self.fields.items() if field in fields}
        return MadeSample(self.view, self.shard, self.ordinal, self.number, self.key, files, self.shar_epoch)

    def renamed(self, key: str) -> MadeSample:
        """The same sample and files under another key."""
        files = {name: self.file(name) for name in self}
        return MadeSample(self.view, self.shard, self.ordinal, self.number, key, files, self.shar_epoch)

    def content(self, extension: str) -> Content:
        """The content of the file with this `extension`, with random access. Raises NotFoundError if there is none."""
        return self._file(extension).content()

    def path(self, extension: str) -> str:
        """The path of the file with this `extension`, relative to the root of the tree. Raises NotFoundError."""
        return self._file(extension).path()

    def extent(self, extension: str) -> PlainRange | None:
        """Where the file with this `extension` is stored: the path or URL of the shard's file, offset and length.

        None if it is computed, decoded or compressed, or in several pieces. Raises NotFoundError if there is none.
        """
        return plain_range_of(self.content(extension))

    def first_path(self) -> bytes:
        """The path of its first file as bytes, relative to the root, or of its shard's ERROR.txt if it has no file."""
        for extension in self:
            return os.fsencode(self.path(extension))
        return os.fsencode(f"shards/{self.shard}/{REPORT}")

    @property
    def duration(self) -> float:
        """Seconds of its `.wav` or `.flac`, by the header. Raises AttributeError if there is none with a duration."""
        header = self._header()
        if header is None:
            raise AttributeError(f"sample {self.key!r} has no recording whose header contains its length")
        return header.frames / header.rate

    @property
    def known_duration(self) -> float | None:
        """Seconds of its recording, or None if no header has its length.

        Raises DecodeLimitError for a segment whose recording has to be decoded.
        """
        try:
            return self.duration
        except DecodeLimitError:
            raise
        except (AttributeError, FormatError):
            return None

    def find_duration(self, most: int) -> float | None:
        """Seconds of its recording, which is read for that; None if it cannot be decoded, or has over `most` bytes.

        Raises DecodeLimitError, MissingExtraError, and the errors of sources, after which it may be found.
        """
        return self.known_duration

    @property
    def rate(self) -> int | None:
        """Sampling rate of its recording in Hz, or None if it has none or no header has the rate."""
        header = self._known_header()
        return None if header is None else header.rate

    @property
    def channels(self) -> int | None:
        """Number of channels of its recording, or None if it has none or no header has the number."""
        header = self._known_header()
        return None if header is None else header.channels

    @property
    def coding(self) -> str | None:
        """The extension of its recording without names and in lower case, such as `flac`; None if it has none."""
        extension = next(iter(recordings_among(self)), None)
        return None if extension is None else coding_of(extension)

    def _header(self) -> AudioInfo | None:
        """The first header of a recording that has its length. Raises FormatError if one before it is damaged."""
        for extension in filter(has_header, recordings_among(self)):
            content = self.content(extension)
            if (found := drive(scan(content.size), content)) is not None:
                return found
        return None

    def _known_header(self) -> AudioInfo | None:
        try:
            return self._header()
        except FormatError:
            return None

    @property
    def text(self) -> str | None:
        """The transcript (its `.txt`), or None if it has none."""
        name = self.text_name
        return None if name is None else self.plain(name).decode("utf-8", "replace")

    @property
    def text_name(self) -> str | None:
        """The extension of its transcript: `txt`, or `txt.gz` and the like; None if it has none."""
        return next((name for name in with_compressed("txt") if name in self), None)

    @property
    def json_name(self) -> str | None:
        """The extension of its JSON: `json`, or `row.json` where each row has a directory, or one of them with `.gz`
        and the like; None if it has none.
        """
        return next((name for each in JSON_NAMES for name in with_compressed(each) if name in self), None)

    def plain(self, extension: str, limit: int | None = None) -> bytes:
        """The bytes of the file with this `extension`, decompressed if it is compressed, as `json.gz` is.

        Raises NotFoundError, and FormatError if they are over `limit`; of a compressed file that is `Limits.json`
        by default.
        """
        try:
            if limit is None and plain_extension(extension) == extension:
                return self[extension]
            return read_plain(extension, self.content(extension), LIMITS.json if limit is None else limit)
        except FormatError as error:
            error.of(self.key)
            raise

    def json(self) -> Any:
        """The parsed `.json`, with the fields that overlays add to an object.

        Raises NotFoundError if it has none, FormatError if that is not JSON.
        """
        overlaid = self.overlaid()
        name = self.json_name or JSON_NAMES[0]
        if overlaid and name not in self:
            return overlaid
        self._file(name)
        try:
            value = parse_json(self.plain(name))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"its .json is not JSON: {error}", key=self.key) from error
        return {**overlaid, **value} if overlaid and isinstance(value, dict) else value

    def overlaid(self) -> dict[str, Any]:
        """The fields that overlays have for it: of two of a name, that of the first overlay. Raises FormatError."""
        fields: dict[str, Any] = {}
        for name in self:
            if is_overlay_row(name):
                try:
                    row = parse_json(self.plain(name, LIMITS.json))
                except (ValueError, RecursionError) as error:
                    raise FormatError(f"its .{name} is not JSON: {error}", key=self.key) from error
                fields = {**row, **fields} if isinstance(row, dict) else fields
        return fields

    def audio(self, dtype: Literal["float32", "int16"] = "float32") -> tuple[NDArray[Any], int]:
        """Its recording as an array, and the sampling rate in Hz.

        Its shape is (frames,) if the recording is mono, else (frames, channels). `dtype` is that of the elements:
        float32 within -1 and 1, or int16.

        Raises NotFoundError if it has no recording, FormatError if that cannot be decoded, and MissingExtraError if
        the decoder that it needs is not installed. PCM in a WAV needs none.
        """
        samples, rate = self.decoded()
        samples = to_int16(samples) if dtype == "int16" else to_float32(samples)
        return (samples[:, 0] if samples.shape[1] == 1 else samples), rate

    def decoded(self) -> tuple[NDArray[Any], int]:
        """Its recording as an array of shape (frames, channels), and the sampling rate in Hz.

        The elements are int16 if it is a WAV of 16-bit PCM, else float32 within -1 and 1. Raises as `audio`.
        """
        extension = next(iter(recordings_among(self)), None)
        if extension is None:
            raise NotFoundError(f"it has no recording: {self._have()}", key=self.key)
        try:
            return decode(self[extension])
        except FormatError as error:
            error.of(self.key)
            raise

    def image(self, extension: str | None = None) -> Image:
        """Its image, as Pillow decodes it: the file with this `extension`, by default its only image.

        Raises NotFoundError if it has none, UsageError if it has several and none is named, FormatError for one that
        cannot be decoded, and MissingExtraError without Pillow.
        """
        extension = self._only("image", is_image) if extension is None else extension
        return decoded_image(self._data(extension), self.key)

    def video(self, extension: str | None = None, *, fps: float | None = None) -> VideoFrames:
        """The frames of its video, the file with this `extension`: all of them, or those at each tick of `fps`.

        A frame is decoded when it is asked for. Raises as `image`, and MissingExtraError without PyAV and Pillow.
        """
        from touchfs.form.video.decoded_frames import VideoFrames

        extension = self._only("video", is_video) if extension is None else extension
        return VideoFrames(self._frames(extension, None if fps is None else Fraction(str(fps))), self.key)

    def _frames(self, extension: str, fps: Fraction | None) -> FramesOf:
        raise UsageError("its frames are found where it is stored: ask the sample of the dataset", key=self.key)

    def array(self, extension: str | None = None) -> NDArray[Any]:
        """The elements of a `.npy`, of the only array of a `.npz`, or of the PCM of a `.wav`.

        `extension` says which of its files; by default, that is its only array. Tokens are a `.npy`; the ends of
        documents beside a window of them do not count. PCM is int16 or int32, of shape (frames,) if mono, else
        (frames, channels).

        Raises NotFoundError if there is no such file, UsageError for other files, and FormatError.
        """
        extension = self._only("array (.npy, .npz)", _is_array) if extension is None else extension
        content = self.content(extension)
        match coding_of(extension):
            case "npy":
                return npy_array(self._data(extension), self.key)
            case "npz":
                return npz_array(self._data(extension), self.key)
            case "wav":
                return pcm_of_wav(content, self.key)
        raise UsageError(f"only a .npy, .npz or .wav is an array as it is, not .{extension}", key=self.key)

    def _data(self, extension: str) -> bytes:
        content = self.content(extension)
        return bytes(content.read(0, content.size))

    def _only(self, kind: str, fits: Callable[[str], bool]) -> str:
        found = [extension for extension in self if fits(extension)]
        if len(found) > 1:
            raise UsageError(f"it has several of these: name one of {', '.join(found)}", key=self.key)
        if not found:
            raise NotFoundError(f"it has no {kind}: {self._have()}", key=self.key)
        return found[0]

    def _file(self, extension: str) -> SampleFile:
        try:
            return self.file(extension)
        except KeyError:
            raise self.missing(extension) from None

    def missing(self, extension: str) -> NotFoundError:
        """The error that there is no file with an extension, which names those that there are."""
        return NotFoundError(f"no file .{extension}: {self._have()}", key=self.key)

    def _have(self) -> str:
        return f"there are {', '.join(f'.{name}' for name in self) or 'none: ERROR.txt of its shard says why'}"

    def _ipython_key_completions_(self) -> list[str]:
        return [*self]

    @property
    def _identity(self) -> tuple[str, str, int, int, int | None]:
        return self.view, self.shard, self.ordinal, self.number, self.shar_epoch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def shown_segments(self) -> ShownSegments | None:
        """Its segments as a page shows them; None if it has none."""
        return None

    @property
    def segment_count(self) -> int:
        """How many segments it has."""
        return 0

    def _repr_html_(self) -> str | None:
        """It as a notebook shows it: sound, pictures and texts; None, so as its `repr`, if that is impossible."""
        from touchfs.explore.files import sample_page
        from touchfs.explore.html import NOTEBOOK_SIZE, SAMPLE_BYTES, fragment

        try:
            files = {name: partial(self.content, name) for name in self}
            return fragment(sample_page(self.key, self.shard, files, NOTEBOOK_SIZE, self.shown_segments), SAMPLE_BYTES)
        except (TouchfsError, OSError, ValueError):
            return None

    def __repr__(self) -> str:
        # Of a segment, the name of its directory tells it from others of the same recording.
        is_segment = self.view.partition("/")[0] in ("segments", "merged")
        name = f"{self.key}/{self.number:04d}" if is_segment else self.key
        return f"<{self.view}/{self.shard}: {name!r}, ordinal={self.ordinal}, {'+'.join(self)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        files = {name: (self.file(name).field, path_or_none(self.file(name)), self[name]) for name in self}
        return _unpickle, (self.view, self.shard, self.ordinal, self.number, self.key, files, self.shar_epoch)


class MadeSample(Sample):
    """A sample of a `view` and a `shard` with given `files`, by extension, under a `key`.

    `ordinal`, `number` and `shar_epoch` are as for `Sample`.
    """

    __slots__ = ("_files", "_key", "_shard")

    def __init__(
        self,
        view: str,
        shard: str,
        ordinal: int,
        number: int,
        key: str,
        files: Mapping[str, SampleFile],
        shar_epoch: int | None = None,
    ) -> None:
        super().__init__(view, ordinal, number, shar_epoch)
        self._shard = shard
        self._key = key
        self._files = files

    @property
    def shard(self) -> str:
        """The name of its shard."""
        return self._shard

    @property
    def key(self) -> str:
        """The key."""
        return self._key

    def file(self, extension: str) -> SampleFile:
        """The file with an extension. Raises KeyError."""
        return self._files[extension]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __contains__(self, extension: object) -> bool:
        return extension in self._files

    def __copy__(self) -> MadeSample:
        return MadeSample(self.view, self._shard, self.ordinal, self.number, self._key, self._files, self.shar_epoch)


def _is_array(extension: str) -> bool:
    return coding_of(extension) in ("npy", "npz") and extension != TOKEN_BOUNDS


def _unpickle(
    view: str,
    shard: str,
    ordinal: int,
    number: int,
    key: str,
    files: dict[str, tuple[str, str | None, bytes]],
    shar_epoch: int | None,
) -> MadeSample:
    shown = {
        name: MadeFile(field, no_path if path is None else partial(str, path), partial(Memory, data))
        for name, (field, path, data) in files.items()
    }
    return MadeSample(view, shard, ordinal, number, key, shown, shar_epoch)
