"""Writer of a cache of the frames of videos: a Lance dataset with a row for each frame, as WebP.

Videos are decoded in child processes, `workers` at a time, and their frames wait in files until all videos before are
written. So memory has a part of a video for each worker, and one batch of frames.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from touchfs.caches.writers.encode import checked_pairs, of_example
from touchfs.caches.writers.encoded_video import EncodedVideo
from touchfs.caches.writers.lance_file import write_lance
from touchfs.caches.writers.meta import LanceCacheMeta, check_lineage
from touchfs.caches.writers.publish import publish
from touchfs.caches.writers.video_input import VideoInput, video_input
from touchfs.core.errors import ArgumentTypeError, ArgumentValueError, CorruptVideoError, FormatError, NotFoundError
from touchfs.core.extras import load_pyarrow
from touchfs.core.progress import advance
from touchfs.features import Features, FeatureType, Video, features_fingerprint
from touchfs.format.cache_metadata.layouts import VideoFramesMetadata, VideoRecord
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.video.webp_frames import webp_frames
from touchfs.posix.threads import ThreadPool

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger(__name__)

# Limits of a child: for each part of a video, which has about a second of work, and in bytes of address space.
_SECONDS, _MEMORY = 60.0, 1 << 30
# Videos that are encoded and wait to be written, for each worker.
_AHEAD = 2
_SIDE_MAX = 16383


def write_lance_video_frames_cache(
    generator: Iterable[tuple[Any, Mapping[str, Any]]],
    features: Mapping[str, FeatureType],
    cache_dir: str | os.PathLike[str],
    *,
    video_column: str | None = None,
    quality: int = 65,
    resize: int | None = None,
    workers: int | None = None,
    skip_corrupt: bool = True,
    lineage: Mapping[str, Any] | None = None,
) -> LanceCacheMeta:
    """Write the frames of the videos of a generator as a cache, which appears as a whole.

    The generator yields pairs of a key and a dict with a video: a path, bytes, or a mapping with `path` or `bytes`. Its
    other values that JSON has are kept as metadata of the video; others (arrays, bytes) are left out. A video must be
    an MP4, QuickTime, Matroska, WebM or AVI. It is stored upright, and its `id` is its position in the cache.

    Args:
        video_column: name of the column; needed if several are `Video(storage='frames')`.
        quality: that of WebP, from 0 to 100.
        resize: side in pixels of the square that frames become if a side of theirs is larger.
        workers: number of processes that decode; by default one for each processor.
        skip_corrupt: leave out and count videos of which a frame cannot be decoded, instead of raising.
        lineage: what the videos were made of, as JSON; stored in the metadata.

    Raises ArgumentValueError, a ValueError, for an empty generator, for wrong values and extensions, ArgumentTypeError,
    a TypeError, for a column or value of another type, MissingFileError, a FileNotFoundError, CorruptVideoError, a
    RuntimeError, for a video that cannot be decoded, or if none can, UsageError if `cache_dir` is a directory but not a
    cache, SourceError, MissingExtraError without pylance, PyAV or Pillow, and what the generator raises. Then nothing
    is left behind, and an old cache stays.
    """
    features = Features.of(features)
    column = _video_column(features, video_column)
    feature = features[column]
    if not isinstance(feature, Video) or feature.storage != "frames":
        raise ArgumentTypeError(f"{column!r} must be a Video(storage='frames') feature.")
    if not 0 <= quality <= 100:
        raise ArgumentValueError(f"quality is from 0 to 100, not {quality}")
    if resize is not None and not 1 <= resize <= _SIDE_MAX:
        raise ArgumentValueError(f"resize is from 1 to {_SIDE_MAX} pixels, not {resize}")
    check_lineage(lineage)
    count = int(workers) if workers else os.cpu_count() or 1
    with publish(cache_dir) as building, _Encoder(building.inputs, count, quality, resize) as encoder:
        frames = _Frames(encoder.run(_inputs(generator, column, feature)), skip_corrupt)
        write_lance(iter(frames), frames.schema, building.path)
        if not frames.videos:
            raise frames.nothing()
        metadata = VideoFramesMetadata(
            num_rows=frames.rows,
            schema_fingerprint=features_fingerprint(features),
            n_skipped=frames.skipped,
            encoding="webp",
            quality=int(quality),
            resize=None if resize is None else int(resize),
            video_column=column,
            videos=tuple(frames.videos),
            lineage=lineage,
            features=features.to_json(),
        )
        building.commit(metadata)
    return LanceCacheMeta.of(Path(cache_dir), metadata)


def _video_column(features: Features, name: str | None) -> str:
    if name is not None:
        if name not in features:
            raise ArgumentValueError(f"the features have no column {name!r}")
        return name
    found = [name for name, feature in features.items() if isinstance(feature, Video) and feature.storage == "frames"]
    if len(found) != 1:
        raise ArgumentValueError(
            "write_lance_video_frames_cache requires exactly one Video(storage='frames') "
            "column or an explicit video_column."
        )
    return found[0]


def _inputs(generator: Iterable[tuple[Any, Mapping[str, Any]]], column: str, feature: Video) -> Iterator[VideoInput]:
    for number, (key, example) in enumerate(checked_pairs(generator)):
        try:
            video = video_input(key, example, column, feature)
        except (ArgumentTypeError, ArgumentValueError, NotFoundError) as error:
            raise of_example(error, column, number) from error
        yield video


class _Frames:
    """The record batches of all frames, in the order of the videos. What they are is known once all were taken."""

    def __init__(self, encoded: Iterator[tuple[VideoInput, Future[EncodedVideo]]], skip_corrupt: bool) -> None:
        pa = load_pyarrow()
        self.schema: pyarrow.Schema = pa.schema(
            {"video_id": pa.int32(), "frame_idx": pa.int32(), "bytes": pa.large_binary()}
        )
        self.videos: list[VideoRecord] = []
        self.rows = 0
        self.skipped = 0
        self._encoded = encoded
        self._skip_corrupt = skip_corrupt
        self._failure: CorruptVideoError | None = None

    def __iter__(self) -> Iterator[pyarrow.RecordBatch]:
        for video, future in self._encoded:
            try:
                encoded = future.result()
            except FormatError as error:
                self._skip(video, error)
            else:
                with closing(encoded):
                    yield from encoded.batches(len(self.videos), self.schema)
                self._add(video, encoded)
            advance(1)

    def nothing(self) -> ArgumentValueError | CorruptVideoError:
        if self._failure is None:
            return ArgumentValueError("Cannot build a lance-video-frames cache from an empty generator.")
        return CorruptVideoError(f"none of the {self.skipped} videos can be decoded: {self._failure.message}")

    def _skip(self, video: VideoInput, error: FormatError) -> None:
        failure = CorruptVideoError(f"failed on {video.path}: {error.message}")
        if not self._skip_corrupt:
            raise failure from error
        log.warning("skipping %s: %s", video.path, error.message)
        self._failure = self._failure or failure
        self.skipped += 1

    def _add(self, video: VideoInput, encoded: EncodedVideo) -> None:
        self.videos.append(
            VideoRecord(
                id=len(self.videos),
                key=video.key,
                path=video.path,
                checksum=video.checksum,
                frames=encoded.frames,
                height=encoded.height,
                width=encoded.width,
                start_row=self.rows,
                metadata=video.metadata,
            )
        )
        self.rows += encoded.frames


class _Encoder:
    """Encodes videos, `workers` at a time, each in a thread that waits for a child process."""

    def __init__(self, directory: Path, workers: int, quality: int, resize: int | None) -> None:
        self._directory = directory
        self._quality = quality
        self._resize = resize
        self._workers = workers
        self._stopped = threading.Event()
        self._threads = ThreadPool(workers, "touchfs-frames")
        self._pool = DecodePool(workers, _SECONDS, _MEMORY)
        self._encoded: WeakSet[EncodedVideo] = WeakSet()

    def run(self, videos: Iterator[VideoInput]) -> Iterator[tuple[VideoInput, Future[EncodedVideo]]]:
        """The videos, each with its frames, in order. Few are taken ahead."""
        return self._threads.in_order(self._encode, videos, _AHEAD * self._workers)

    def _encode(self, video: VideoInput) -> EncodedVideo:
        encoded = EncodedVideo(self._directory)
        self._encoded.add(encoded)
        try:
            for part in webp_frames(video.content, self._pool, self._quality, self._resize):
                encoded.append(part)
                if self._stopped.is_set():
                    break
        except BaseException:
            encoded.close()
            raise
        return encoded

    def __enter__(self) -> _Encoder:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._threads.close()
        self._pool.close()
        for encoded in self._encoded:  # those that nobody takes any more
            encoded.close()
