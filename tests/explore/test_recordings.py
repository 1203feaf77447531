"""Recordings of any length are drawn, and what is read of them is bounded."""

import io

import numpy as np
import pytest
import soundfile

from touchfs.core.extent import Memory
from touchfs.explore.lanes import lanes_of
from touchfs.explore.page import ShownSegment
from touchfs.explore.recordings import draw, format_seconds
from touchfs.format import wav
from touchfs.picture.shrink import bounds

RATE = 48000


class Counted:
    """A WAV of stereo whose samples are computed; it counts the bytes that are read of it."""

    def __init__(self, frames):
        self.header = wav.build_header(frames * 4, RATE, 2)
        self.size, self.taken, self.largest = len(self.header) + frames * 4, 0, 0

    def read(self, offset, length):
        length = min(length, self.size - offset)
        self.taken, self.largest = self.taken + length, max(self.largest, length)
        if offset < len(self.header):
            return (self.header + bytes(4096))[offset : offset + length]
        return b"\x00\x10\x00\xf0" * (length // 4)

    def read_nowait(self, offset, length):
        return None


def test_a_long_recording_is_sampled():
    content = Counted(RATE * 3600)
    found = draw("wav", content, 400)
    assert content.taken <= (1 << 27) + 10_000 and content.largest <= 1 << 24
    assert (
        found.remark.startswith("sampled") and found.seconds == 3600 and found.facts.startswith("1:00:00 h · 48,000 Hz")
    )
    assert (found.sketch.high[0] == 0.125).all() and (found.sketch.low[1] == -0.125).all()


def test_a_shorter_one_is_read_whole_and_in_blocks():
    content = Counted(RATE * 300)
    found = draw("wav", content, 400)
    assert content.size <= content.taken <= content.size + 10_000 and content.largest <= 1 << 23
    assert found.remark == "" and (found.sketch.high[0] == 0.125).all()


@pytest.mark.parametrize(("seconds", "drawn"), [(30, 30), (150, 60)])
def test_of_a_long_coded_recording_the_first_minute_is_drawn(seconds, drawn):
    file = io.BytesIO()
    samples = np.zeros(8000 * seconds, np.int16)
    samples[8000 * 15] = 20_000
    soundfile.write(file, samples, 8000, format="FLAC")
    found = draw("flac", Memory(file.getvalue()), 300)
    assert found.drawn == pytest.approx(drawn, abs=0.001) and found.seconds == seconds
    assert found.remark == ("" if drawn == seconds else "the first 60 s of 2:30 min")
    edges = bounds(round(found.drawn * 8000), 300)
    assert np.flatnonzero(found.sketch.high[0] > 0.5).tolist() == [int(np.searchsorted(edges, 8000 * 15, "right")) - 1]


def test_segments_that_overlap_are_in_lanes_of_their_own():
    segments = [
        ShownSegment(0, 0, 2, speaker="a"),
        ShownSegment(1, 1, 3, speaker="b"),
        ShownSegment(2, 2, 4, speaker="a"),
    ]
    segments += [ShownSegment(3, 2.5, 5, speaker="b")]
    assert [[each.number for each in lane] for lane in lanes_of(segments)] == [[0, 2], [1], [3]]


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.2964, "1.296 s"), (59.9996, "60.000 s"), (125, "2:05 min"), (3661, "1:01:01 h")]
)
def test_durations_are_for_people(seconds, text):
    assert format_seconds(seconds) == text
