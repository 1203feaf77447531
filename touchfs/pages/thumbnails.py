"""Small images: those of the first samples of a dataset, and frames of a video."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import islice
from time import monotonic

import numpy as np

from touchfs.catalog.table import Table
from touchfs.dataset.open_shard import OpenShard
from touchfs.explore.files import THUMBNAIL, thumbnail
from touchfs.explore.page import Part, Thumbnails
from touchfs.form.video.decoded_frames import VideoFrames
from touchfs.media.extensions import is_image
from touchfs.picture.shrink import fit, shrink
from touchfs.select.selection import AnySamples

_IMAGES, _LOOKED_AT, _SECONDS = 12, 50, 2.0
# One frame a second, of which some are shown.
_RATE, _FRAMES = Fraction(1), 6


def first_images(samples: AnySamples, clock: Callable[[], float] = monotonic) -> Iterator[Part]:
    """The first images of some samples, if they have any. Takes two seconds at most."""
    found, until = [], clock() + _SECONDS
    for sample in islice(iter(samples), _LOOKED_AT):
        name = next(filter(is_image, sample), None)
        if name is not None and (pixels := thumbnail(name, partial(sample.content, name))) is not None:
            found.append((sample.key, pixels))
        if len(found) == _IMAGES or clock() > until:
            break
    if found:
        yield Thumbnails("First images", "", found)


def frames_of(shard: OpenShard, table: Table, row: int) -> Thumbnails:
    """Frames of the video at a row, from its begin to its end. Raises as `VideoFrames`."""
    name = table.extension(row)
    frames = VideoFrames(shard.frames(table, row, _RATE), table.key(row))
    numbers = np.unique(np.linspace(0, len(frames) - 1, _FRAMES).astype(int)).tolist() if len(frames) else []
    found = []
    for number in numbers:
        pixels = frames[number]
        width, height = fit(pixels.shape[1], pixels.shape[0], THUMBNAIL.width, THUMBNAIL.height)
        found.append((f"{frames.seconds(number):.2f} s", shrink(pixels, height, width).astype(np.uint8)))
    return Thumbnails(name, "frames", found)
