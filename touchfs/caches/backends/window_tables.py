"""Tables of windows of frames: their schema, and the columns of some windows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchfs.caches.frame_windows import WindowPlan
from touchfs.core.extras import load_pyarrow
from touchfs.format.cache_metadata.layouts import VideoRecord

if TYPE_CHECKING:
    import pyarrow

    Columns = dict[str, pyarrow.Array]

_CHANNELS = 3
# An array of lists of one size numbers its values with 32 bits.
_LIST_MAX = 2**31 - 1


class WindowTables:
    """Builds tables of windows of a plan over videos. Columns of metadata have one value for each video."""

    def __init__(self, plan: WindowPlan, videos: Sequence[VideoRecord]) -> None:
        self._plan = plan
        self._videos = videos
        shapes = {(plan.length, video.height, video.width, _CHANNELS) for video in videos}
        self.window_bytes = max(int(np.prod(shape, dtype=np.int64)) for shape in shapes)
        self._shape = shapes.pop() if len(shapes) == 1 and self.window_bytes <= _LIST_MAX else None

    @cached_property
    def schema(self) -> pyarrow.Schema:
        """The schema of all tables."""
        pa = load_pyarrow()
        fields = {
            "video": self._video_type(),
            "video_idx": pa.int64(),
            "filename": pa.string(),
            "start_frame": pa.int64(),
            "frame_indices": pa.list_(pa.int64()),
            "sample_idx": pa.int64(),
        }
        metadata = {name: column.type for name, column in self._metadata.items() if name not in fields}
        return pa.schema(fields | metadata)

    def build(
        self, indices: Sequence[int], places: Sequence[tuple[int, int]], windows: Sequence[NDArray[np.uint8]]
    ) -> pyarrow.Table:
        """A table of windows: their numbers, videos and first frames, and pixels."""
        pa = load_pyarrow()
        schema = self.schema
        videos = [video for video, _ in places]
        columns = {
            "video": self._video_column(windows),
            "video_idx": videos,
            "filename": [self._videos[video].path for video in videos],
            "start_frame": [start for _, start in places],
            "frame_indices": [list(self._plan.frames(start)) for _, start in places],
            "sample_idx": indices,
        }
        arrays = []
        for field in schema:
            column: Any = columns.get(field.name)
            if column is None:
                arrays.append(self._metadata[field.name].take(pa.array(videos, pa.int64())))
            elif field.name == "video":
                arrays.append(column)
            else:
                arrays.append(pa.array(column, field.type))
        return pa.table(arrays, schema=schema)

    @cached_property
    def _metadata(self) -> Columns:
        """The metadata of all videos by name, of the type that fits all of them, or as JSON."""
        names = dict.fromkeys(name for video in self._videos for name in video.metadata)
        return {name: _column([video.metadata.get(name) for video in self._videos]) for name in names}

    def _video_type(self) -> pyarrow.DataType:
        pa = load_pyarrow()
        if self._shape is not None:
            return pa.fixed_shape_tensor(pa.uint8(), self._shape)
        # How Arrow stores tensors of variable shape, with larger offsets
        return pa.struct({"data": pa.large_list(pa.uint8()), "shape": pa.list_(pa.int32(), 4)})

    def _video_column(self, windows: Sequence[NDArray[np.uint8]]) -> pyarrow.Array:
        pa = load_pyarrow()
        kind = self._video_type()
        pixels = pa.array(np.concatenate([window.reshape(-1) for window in windows] or [np.empty(0, np.uint8)]))
        if self._shape is not None:
            rows = pa.FixedSizeListArray.from_arrays(pixels, kind.storage_type.list_size)
            return pa.ExtensionArray.from_storage(kind, rows)
        ends = np.cumsum([0, *(window.size for window in windows)])
        data = pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pixels)
        shapes = pa.array([window.shape for window in windows], pa.list_(pa.int32(), 4))
        return pa.StructArray.from_arrays([data, shapes], fields=list(kind))


def _column(values: list[Any]) -> pyarrow.Array:
    pa = load_pyarrow()
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else json.dumps(value) for value in values], pa.string())
