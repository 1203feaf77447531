"""Windows of frames of videos, from a cache of the layout `lance-video-frames`, as a storage backend.

A row of the dataset is a frame as WebP, a row of the backend a window: some frames of one video, decoded. Windows are
numbered video by video (`tables/frame_windows.py`). Nothing of Lance runs before a window is read.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchfs.caches.backends.indices import check_index, check_indices, check_shards
from touchfs.caches.backends.protocol import Indices
from touchfs.caches.backends.window_tables import WindowTables
from touchfs.caches.frame_windows import WindowPlan, Windows
from touchfs.caches.video_cache import open_video_cache
from touchfs.core.errors import ArgumentValueError, ChangedError, FormatError, MissingExtraError
from touchfs.core.extras import install_hint
from touchfs.core.names import hex_digest
from touchfs.format.cache_metadata.build import metadata_members
from touchfs.format.cache_metadata.layouts import VideoFramesMetadata, VideoRecord
from touchfs.limits import LIMITS
from touchfs.tables.lance.open import DATASETS

if TYPE_CHECKING:
    import pyarrow

    from touchfs.caches.backends.protocol import StorageBackend

# Decoded frames of one batch of `iter_batches`, in bytes.
_BATCH_BYTES = 1 << 26


class LanceVideoFramesBackend:
    """Windows of the videos of a cache in the directory `uri`.

    A window has `window_length` frames and leaves out `frame_skip` frames between two; the next window of a video
    begins `hop_size` frames later. Videos of fewer than `min_video_frames` frames have none. `batch_readahead` is the
    number of windows that `iter_batches` reads at once.

    A row has `video`, uint8 of shape (window_length, height, width, 3) in RGB; `video_idx`, the position of the video
    in the cache; `filename`, its path when the cache was written, which is a label only; `start_frame`,
    `frame_indices`, `sample_idx`; and the metadata of the video under other names than these.

    In tables `video` is of Arrow's fixed_shape_tensor if all videos have the same size, else a struct of `data` and
    `shape`. Columns of metadata have the type that fits all videos, or are JSON.

    Raises ValueError for an impossible window or if there is no window, FileNotFoundError if there is no cache, and
    CacheFormatError, a ValueError, for one that is damaged.
    """

    prefer_batched_take = False
    is_file_backed = True
    num_shards = 1

    def __init__(
        self,
        *,
        uri: str | Path,
        window_length: int = 1,
        frame_skip: int = 0,
        hop_size: int = 1,
        min_video_frames: int | None = None,
        batch_readahead: int = 8,
    ) -> None:
        least = None if min_video_frames is None else int(min_video_frames)
        self._plan = WindowPlan(int(window_length), int(frame_skip), int(hop_size), least)
        self._batch_readahead = int(batch_readahead)
        self._cache, self._table = open_video_cache(os.fspath(uri))
        self.num_rows = len(self._windows)
        if not self.num_rows:
            wanted = f"span={self._plan.span}"
            if least is not None and least > self._plan.span:
                wanted = f"min_video_frames={least}"
            raise ArgumentValueError(f"no valid segments: every video has fewer than {wanted} frames")
        self.fingerprint = hex_digest(f"{self._table.read_manifest().digest} {self._plan.name}".encode())

    @property
    def cache_dir(self) -> Path:
        """The directory of the cache."""
        return Path(self._table.path)

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the cache, as `_metadata.json` has them."""
        return metadata_members(self._cache)

    @property
    def schema(self) -> pyarrow.Schema:
        return self._tables.schema

    @property
    def table(self) -> pyarrow.Table:
        """See `StorageBackend`. This decodes all windows."""
        return self.slice(0, self.num_rows)

    @property
    def video_paths(self) -> list[str]:
        """The label of each video: its path when the cache was written."""
        return [video.path for video in self._videos]

    @property
    def segment_filenames(self) -> list[str]:
        """The label of the video of each window."""
        return [self.segment_filename(idx) for idx in range(self.num_rows)]

    def segment_filename(self, idx: int) -> str:
        """The label of the video of a window. Raises IndexError."""
        return self._videos[self._locate(idx)[0]].path

    def segment_info(self, idx: int) -> dict[str, Any]:
        """`video_idx`, `filename`, `start_frame` and `frame_indices` of a window. Raises IndexError."""
        video, start = self._locate(idx)
        return {
            "video_idx": video,
            "filename": self._videos[video].path,
            "start_frame": start,
            "frame_indices": list(self._plan.frames(start)),
        }

    def get_row(self, idx: int) -> dict[str, Any]:
        """See `StorageBackend`. `video` is an array of shape (window_length, height, width, 3)."""
        idx = check_index(idx, self.num_rows)
        (video,) = self._decode([idx])
        info = self.segment_info(idx)
        row = {"video": video, **info, "sample_idx": idx}
        return {**self._videos[info["video_idx"]].metadata, **row}

    def take(self, indices: Indices) -> pyarrow.Table:
        """See `StorageBackend`. The frames of all windows come from one call of Lance, each decoded once."""
        chosen = check_indices(indices, self.num_rows).tolist()
        places = [self._locate(idx) for idx in chosen]
        return self._tables.build(chosen, places, self._decode(chosen))

    def slice(self, start: int, length: int) -> pyarrow.Table:
        if start < 0:
            raise IndexError(f"row {start} of {self.num_rows}")
        return self.take(range(start, max(min(start + length, self.num_rows), start)))

    def iter_batches(
        self, shard_indices: list[int] | None = None, shuffle: bool = False, seed: int | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        """See `StorageBackend`. `shuffle` shuffles windows, as there is one shard only."""
        for _ in check_shards(shard_indices, self.num_shards):
            order = np.arange(self.num_rows)
            if shuffle:
                np.random.default_rng(seed).shuffle(order)
            count = max(min(self._batch_readahead, _BATCH_BYTES // self._tables.window_bytes), 1)
            for first in range(0, len(order), count):
                yield from self.take(order[first : first + count]).to_batches()

    @staticmethod
    def worker_init(worker_id: int) -> None:
        """Forget what is open: for `worker_init_fn` of a DataLoader. Not needed after a fork, and does no harm."""
        reset_worker_state()

    @property
    def _videos(self) -> Sequence[VideoRecord]:
        return self._cache.videos

    @cached_property
    def _cache(self) -> VideoFramesMetadata:
        metadata, table = open_video_cache(self._table.path)
        if table.pin() != self._table.pin():
            raise ChangedError("the cache was replaced by another one: open it again", path=table.path)
        return metadata

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self._plan, [video.frames for video in self._videos])

    @cached_property
    def _tables(self) -> WindowTables:
        return WindowTables(self._plan, self._videos)

    def _locate(self, idx: int) -> tuple[int, int]:
        return self._windows.locate(check_index(idx, self.num_rows))

    def _decode(self, indices: Sequence[int]) -> list[NDArray[np.uint8]]:
        """The windows, each of shape (window_length, height, width, 3). Windows that overlap share the decoding."""
        windows = []
        for idx in indices:
            video, start = self._locate(idx)
            record = self._videos[video]
            windows.append((record, [record.start_row + frame for frame in self._plan.frames(start)]))
        largest = max((record.width * record.height for record, _ in windows), default=0) * self._plan.length * 3
        if largest > LIMITS.decoded:
            raise FormatError(f"a window has {largest:,} bytes: at most {LIMITS.decoded:,}", path=self._table.path)
        sizes = {row: (record.width, record.height) for record, rows in windows for row in rows}
        rows = sorted(sizes)
        encoded = self._table.take(rows, ["bytes"]).column("bytes")
        frames = {row: decode_webp(data.as_py(), *sizes[row]) for row, data in zip(rows, encoded, strict=True)}
        return [np.stack([frames[row] for row in rows]) for _, rows in windows]

    def __getstate__(self) -> dict[str, Any]:
        return {
            "table": self._table,
            "plan": self._plan,
            "batch_readahead": self._batch_readahead,
            "num_rows": self.num_rows,
            "fingerprint": self.fingerprint,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._table = state["table"]
        self._plan = state["plan"]
        self._batch_readahead = state["batch_readahead"]
        self.num_rows = state["num_rows"]
        self.fingerprint = state["fingerprint"]


def decode_webp(data: bytes, width: int, height: int) -> NDArray[np.uint8]:
    """Return the pixels, uint8 of shape (height, width, 3) in RGB.

    Raises FormatError if it is no WebP or has another size, which its header says, and MissingExtraError.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(f"frames of videos need Pillow: {install_hint('video')}") from error
    try:
        with Image.open(io.BytesIO(data), formats=("WEBP",)) as image:
            if image.size != (width, height):
                raise FormatError(f"a frame has {image.size} pixels where {(width, height)} were expected")
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise FormatError(f"a frame cannot be decoded: {error}") from error


def reset_worker_state() -> None:
    """Close the Lance datasets that this process has open. They are opened again when they are read."""
    DATASETS.forget()


if TYPE_CHECKING:
    _: type[StorageBackend] = LanceVideoFramesBackend
