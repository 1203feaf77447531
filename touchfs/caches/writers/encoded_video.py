"""The frames of one video, encoded, in a file without a name until they are written in their turn.

Videos are encoded side by side and written in order. So that a long one keeps no other waiting, and none is in memory,
its frames wait on the disk. A frame of 224 × 224 pixels has some 5 KB.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from touchfs.caches.writers.publish import map_write_errors
from touchfs.core.errors import FormatError
from touchfs.core.extras import load_pyarrow
from touchfs.media.video.webp_frames import WebpFrames

if TYPE_CHECKING:
    import pyarrow

# Bytes of frames in one record batch, unless a frame has more; and frames
_BATCH_BYTES = 1 << 22
_BATCH_FRAMES = 1024


class EncodedVideo:
    """Frames of `width` × `height` pixels, which are appended and then read once."""

    def __init__(self, directory: Path) -> None:
        with map_write_errors(directory):
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 (`close` closes it)
        self._directory = directory
        self._sizes = array("I")
        self.width = self.height = 0

    @property
    def frames(self) -> int:
        """The number of frames."""
        return len(self._sizes)

    def append(self, part: WebpFrames) -> None:
        """Append frames. Raises FormatError if they have another size than those before, and SourceError."""
        if self.frames and (self.width, self.height) != (part.width, part.height):
            raise FormatError("cannot be decoded: the decoder sends nonsense")
        self.width, self.height = part.width, part.height
        self._sizes.extend(map(len, part.frames))
        with map_write_errors(self._directory):
            self._file.writelines(part.frames)

    def batches(self, video_id: int, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
        """Yield the frames as rows: video id, position, bytes."""
        pa = load_pyarrow()
        sizes = np.frombuffer(self._sizes, np.uint32).astype(np.int64)
        first = 0
        self._file.seek(0)
        while first < len(sizes):
            ends = np.cumsum(sizes[first : first + _BATCH_FRAMES])
            count = max(int(np.searchsorted(ends, _BATCH_BYTES, "right")), 1)
            offsets = np.concatenate([[0], ends[:count]])
            with map_write_errors(self._directory):
                data = self._file.read(int(offsets[-1]))
            yield pa.record_batch(
                [
                    pa.array(np.full(count, video_id, np.int32)),
                    pa.array(np.arange(first, first + count, dtype=np.int32)),
                    pa.LargeBinaryArray.from_buffers(
                        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
                    ),
                ],
                schema=schema,
            )
            first += count

    def close(self) -> None:
        """Remove the frames."""
        self._file.close()
