"""The sound of a video is sliced as that of any recording."""

import random

import numpy as np
import pytest
from recordings import decode_all, to_16_bits
from videos import VIDEOS, make

from touchfs.core.extent import Memory
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice

NAMES = [name for name, options in VIDEOS.items() if "-c:a" in options]
# They come within 1 of 32768: see `slices/preroll.py`
NEAR = ("opus", "mp2")


@pytest.mark.parametrize("name", NAMES)
def test_slices_are_those_of_a_full_decode(tmp_path, pool, name):
    path = make(tmp_path, name)
    whole = decode_all(path)
    content = Memory(path.read_bytes())
    chooser = random.Random(name)
    info = probe(content, pool)
    assert info.frames == len(whole)
    if info.coding in NEAR:
        target, whole = "s16", to_16_bits(whole)
    else:
        target, whole = info.sample_format, whole >> 8 if info.sample_format == "s24" else whole
    for _ in range(10):
        first = chooser.randrange(info.frames)
        length = chooser.randrange(1, 100_000)
        samples = read_slice(content, info, first, length, pool, target).samples
        wanted = whole[first : first + length]
        assert samples.shape == wanted.shape
        assert np.abs(samples.astype(float) - wanted).max() <= (info.coding in NEAR)
