"""The form of spans of videos: an MP4 with the packets of the span, which are ranges of the video."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from touchfs.core.extent import Content, Extent
from touchfs.form.base import Form
from touchfs.form.deferred import DeferredContent
from touchfs.form.kept import key_of
from touchfs.form.results import Results
from touchfs.form.video.videos import video_of
from touchfs.limits import Limits

if TYPE_CHECKING:
    from touchfs.media.video.remux import Movie

KEPT_BYTES = 1 << 25
_RANGE_BYTES = 150


@dataclass(frozen=True, slots=True)
class VideoSpan(Form):
    """`video`: a video in any container; the file is an MP4 of the times that `detail` packs
    (`touchfs.segments.packed_times`). Nothing is decoded or stored for it.
    """

    def __str__(self) -> str:
        return "video"

    def size(self, length: int, detail: bytes) -> None:
        return None

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        movie = _movies.known((key_of(extent), detail))
        return None if movie is None else movie.size

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return DeferredContent(lambda: _movie_of(extent, detail, limits).content(extent))


def _movie_of(extent: Extent, detail: bytes, limits: Limits) -> Movie:
    from touchfs.media.video.remux import empty_movie, remux

    video = video_of(extent, limits)

    def make() -> Movie:
        return empty_movie() if video.info is None else remux(video.info, *video.span(detail))

    return _movies.get((key_of(extent), detail), make)


_movies: Results[Movie] = Results(KEPT_BYTES, lambda movie: len(movie.head) + _RANGE_BYTES * len(movie.ranges))
