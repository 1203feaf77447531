"""Sizes of images, by the headers of those of random samples. Nothing is decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

import numpy as np

from touchfs.core.errors import TouchfsError
from touchfs.core.extent import drive
from touchfs.format.image_size import ImageSize, image_size_reads
from touchfs.media.extensions import is_image
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.select.selection import AnySamples

_SAMPLES, _SECONDS = 2_000, 2.0
# Samples without an image after which there is no more hope of one.
_TRIED = 50


def image_sizes(samples: AnySamples, clock: Callable[[], float] = monotonic) -> Counter[ImageSize]:
    """The sizes of the first image of each of some random samples."""
    found, until = Counter[ImageSize](), clock() + _SECONDS
    order = Feistel(len(samples), round_keys(0))
    for tried, position in enumerate(order(np.arange(min(_SAMPLES, len(samples)), dtype=np.int64)).tolist()):
        if clock() > until or (tried >= _TRIED and not found):
            break
        with suppress(TouchfsError):
            sample = samples[position]
            if (name := next(filter(is_image, sample), None)) is not None:
                content = sample.content(name)
                if (size := drive(image_size_reads(content.size), content)) is not None:
                    found[size] += 1
    return found
