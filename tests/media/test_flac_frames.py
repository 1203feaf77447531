"""FLAC streams that encoders seldom write: made here, frame by frame, and compared with what was put in."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest

from touchfs.core.extent import Memory
from touchfs.media.decoder.pool import DecodePool
from touchfs.media.slices.probe import probe
from touchfs.media.slices.read_slice import read_slice


def crc(data: bytes, polynomial: int, bits: int) -> bytes:
    value = 0
    for byte in data:
        value ^= byte << bits - 8
        for _ in range(8):
            value = (value << 1 ^ (polynomial if value >> bits - 1 else 0)) & (1 << bits) - 1
    return value.to_bytes(bits // 8, "big")


@dataclass(frozen=True)
class Stream:
    """A mono stream of 16 bits at 8 kHz, in frames of these sizes, whose samples are stored as they are.

    `numbers` says what frame headers have: of frames, or of samples, and in the second case whether they say so.
    """

    sizes: tuple[int, ...]
    numbers: str
    is_counted: bool = True

    def header(self, frame: int, first: int, size: int) -> bytes:
        number = chr(frame if self.numbers == "frames" else first).encode()
        head = bytes([0xFF, 0xF9 if self.numbers == "samples, said" else 0xF8, 0x70, 0x08]) + number
        head += (size - 1).to_bytes(2, "big")
        return head + crc(head, 0x07, 8)

    def make(self, sounds: list[bytes]) -> bytes:
        """The file of big-endian samples, for each frame."""
        info = b"".join(n.to_bytes(2, "big") for n in (min(self.sizes[:-1]), max(self.sizes))) + bytes(6)
        info += (8000 << 44 | 15 << 36 | (sum(self.sizes) if self.is_counted else 0)).to_bytes(8, "big") + bytes(16)
        data = [b"fLaC\x80\0\0\x22", info]
        first = 0
        for number, (size, sound) in enumerate(zip(self.sizes, sounds, strict=True)):
            frame = self.header(number, first, size) + b"\x02" + sound
            data.append(frame + crc(frame, 0x8005, 16))
            first += size
        return b"".join(data)


SAME = (256,) * 40 + (100,)
SEVERAL = tuple(random.Random(1).choices((192, 256, 300, 576), k=40))
STREAMS = {
    "frames are numbered": Stream(SAME, "frames"),
    "samples are numbered": Stream(SEVERAL, "samples, said"),
    "before FLAC 1.2": Stream(SEVERAL, "samples"),
    "no count": Stream(SAME, "frames", is_counted=False),
    "no count, before FLAC 1.2": Stream(SEVERAL, "samples", is_counted=False),
}


@pytest.mark.parametrize("has_false_headers", [False, True])
@pytest.mark.parametrize("name", STREAMS)
def test_spans_are_what_was_put_in(pool: DecodePool, name: str, has_false_headers: bool) -> None:
    stream = STREAMS[name]
    sounds = [random.Random(size).randbytes(2 * size) for size in stream.sizes]
    if has_false_headers:  # they fit the stream: their number and size are those of another frame
        false = b"".join(stream.header(n, sum(stream.sizes[:n]), stream.sizes[n]) + b"\x02" for n in (30, 2))
        sounds = [sound[:20] + false + sound[20 + len(false) :] for sound in sounds]
    whole = np.frombuffer(b"".join(sounds), ">i2")[:, None]
    tag = b"TAG" + bytes(125)
    content = Memory(stream.make(sounds) + (b"" if stream.is_counted else tag))
    info = probe(content, pool)
    assert info.frames == sum(stream.sizes)
    chooser = random.Random(3)
    for first in (0, info.frames - 50, *(chooser.randrange(info.frames) for _ in range(20))):
        length = chooser.randrange(1, 700)
        pcm = read_slice(content, info, first, length, pool)
        assert np.array_equal(pcm.samples, whole[first : first + length]), (first, length)
