"""Lance caches whose rows are frames of videos. The samples are the videos: a JSON each, and frames in `frames/`."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from touchfs.core.errors import FormatError
from touchfs.core.extent import Memory, drive
from touchfs.format.arrow.file import parse_arrow
from touchfs.format.cache_metadata.layouts import VideoFramesMetadata, VideoRecord
from touchfs.shard.options import Options
from touchfs.shard.sample import Field, StoredSample, StoredSamples
from touchfs.source.fingerprint import Files
from touchfs.tables.lance.apart import LanceApart
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.forms import LanceVideo, pack_video
from touchfs.tables.shards.lance_files import manifest_of, size_of

# The column of the frames.
FRAMES_COLUMN = "bytes"


class LanceVideosShard(StoredSamples):
    """The videos of the dataset at `path`, whose `_metadata.json` is `metadata`."""

    def __init__(self, path: str, options: Options, files: Files, metadata: VideoFramesMetadata) -> None:
        self.path = path
        self.files = files
        self._videos = metadata.videos
        self._manifest, version = manifest_of(path, files)
        with closing(LanceApart(LanceTable(path, version, files[self._manifest]))) as lance:
            rows, message, _ = lance.call("describe")
        names = [field.name for field in drive(parse_arrow(len(message)), Memory(message)).schema.fields]
        if FRAMES_COLUMN not in names:
            raise FormatError(f"is no cache of frames: it has no column {FRAMES_COLUMN!r}", path=path)
        self._rows: int = rows
        self._form = LanceVideo((names.index(FRAMES_COLUMN),), metadata.encoding)
        self.problems = (
            []
            if self._rows == metadata.num_rows
            else [f"_metadata.json says that it has {metadata.num_rows} frames, and it has {self._rows}"]
        )

    @property
    def size(self) -> int:
        return size_of(self.files)

    @property
    def index_size(self) -> int:
        return self.files[self._manifest].size

    def close(self) -> None:
        """Do nothing, as nothing is open."""

    def __len__(self) -> int:
        return len(self._videos)

    def sample(self, ordinal: int) -> StoredSample:
        """The video at an ordinal."""
        video = self._videos[ordinal]
        key = str(video.key) if isinstance(video.key, str | int) and str(video.key) else ""
        missing = video.start_row + video.frames - self._rows
        frames = video.frames if missing <= 0 else 0
        detail = pack_video(video.start_row if frames else 0, frames, _record(video))
        return StoredSample(
            key or f"{ordinal:08d}",
            ordinal,
            {"video": Field("video", self._manifest, 0, 0, self._form, "json", detail=detail)},
            problem=f"{missing} of its frames are missing" if missing > 0 else "",
            is_keyed=bool(key),
        )


def _record(video: VideoRecord) -> dict[str, Any]:
    """A video as `_metadata.json` has it."""
    return {
        "id": video.id,
        "key": video.key,
        "path": video.path,
        "checksum": video.checksum,
        "T": video.frames,
        "H": video.height,
        "W": video.width,
        "start_row": video.start_row,
        "metadata": dict(video.metadata),
    }
