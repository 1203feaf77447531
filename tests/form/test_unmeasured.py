"""Recordings whose rate and length are found when they are needed: files of any seconds of them."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conformance import MemorySource, check_reads
from recordings import decode_all, make, to_16_bits
from spans import span_detail
from waiting import wait_until

from touchfs.core.errors import FormatError, SourceError
from touchfs.core.extent import Buffer, Extent
from touchfs.form import results
from touchfs.limits import LIMITS
from touchfs.registry.forms import parse_form

FORM = parse_form("unmeasured")


@pytest.fixture(scope="module")
def mp3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("recordings"), "a.mp3", 44100, 2)


def extent_of(data: bytes) -> Extent:
    """An extent that nobody has read before."""
    return Extent(MemorySource(b"before" + data + b"behind"), 6, len(data))


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        (0, None, 0, 9 * 44100),
        (1.5, 2.25, 66150, 99225),
        (8.5, None, 374850, 9 * 44100),
        (8.5, 100, 374850, 9 * 44100),
        (0.00001, 0.00002, 0, 1),  # to the nearest sample
        (100, 101, 0, 0),
        (3, 2, 0, 0),
    ],
)
def test_any_seconds(mp3: Path, start: float, end: float | None, first: int, last: int) -> None:
    extent, detail = extent_of(mp3.read_bytes()), span_detail(start, end)
    made = FORM.content(extent, detail, LIMITS)
    assert FORM.size(extent.size, detail) is None
    assert FORM.known_size(extent, detail, LIMITS) is None
    assert made.read_nowait(0, 100) is None
    assert made.size == FORM.known_size(extent, detail, LIMITS) == 44 + 4 * (last - first)
    samples, rate = soundfile.read(io.BytesIO(made.read(0, made.size)), dtype="int16")
    assert rate == 44100
    assert np.array_equal(samples, to_16_bits(decode_all(mp3))[first:last])
    check_reads(made, bytes(made.read(0, made.size)))


def test_a_wav_that_is_cut_short_ends_with_its_file() -> None:
    """What comes after it in its shard is not its sound."""
    wav, samples = io.BytesIO(), np.arange(8000, dtype=np.int16)
    soundfile.write(wav, samples, 8000, format="WAV")
    extent = extent_of(wav.getvalue()[: 44 + 2 * 5000])
    for span, first, end in (((0.25, 0.5), 2000, 4000), ((0.5, 0.75), 4000, 5000), ((0,), 0, 5000), ((0.75, 1), 0, 0)):
        content = FORM.content(extent, span_detail(*span), LIMITS)
        assert bytes(content.read(0, content.size))[44:] == samples[first:end].tobytes()
    parts = FORM.content(extent, span_detail(0), replace(LIMITS, window=1000))
    assert bytes(parts.read(44, 5000)) == wav.getvalue()[44:5044]


def test_what_is_known_needs_no_wait(mp3: Path) -> None:
    extent = extent_of(mp3.read_bytes())
    assert FORM.content(extent, span_detail(0), LIMITS).size == 44 + 9 * 44100 * 4
    made = FORM.content(extent, span_detail(1, 2), LIMITS)
    assert made.read_nowait(0, 4) == b"RIFF"  # the header needs no decoding
    assert made.read_nowait(44, 4) is None


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_pcm_is_a_header_and_a_range(subtype: str) -> None:
    wav = io.BytesIO()
    soundfile.write(wav, np.random.default_rng(0).uniform(-1, 1, (16000, 2)), 8000, format="WAV", subtype=subtype)
    made = FORM.content(extent_of(wav.getvalue()), span_detail(0.5, 1), LIMITS)
    piece = bytes(made.read(0, made.size))
    width = soundfile.info(io.BytesIO(piece)).frames * 2 and (len(piece) - 44) // 8000
    assert soundfile.info(io.BytesIO(piece)).subtype == subtype
    assert piece[44:] == wav.getvalue()[-16000 * 2 * width :][4000 * 2 * width : 8000 * 2 * width]
    assert made.read_nowait(0, made.size) == piece


def test_threads_wait_for_one_reading(mp3: Path) -> None:
    data = mp3.read_bytes()
    begun, go_on = threading.Event(), threading.Event()
    reads = []

    class Slow(MemorySource):
        def read(self, offset: int, length: int) -> Buffer:
            reads.append(offset)
            if length > 1:
                begun.set()
                assert go_on.wait(60)
            return super().read(offset, length)

    extent = Extent(Slow(data), 0, len(data))
    with ThreadPoolExecutor(8) as threads:
        sizes = [threads.submit(lambda: FORM.content(extent, span_detail(0, 1), LIMITS).size) for _ in range(8)]
        assert begun.wait(60)
        wait_until(lambda: reads.count(0) >= 9)  # each thread opens the file, and one reads it
        go_on.set()
        assert {size.result() for size in sizes} == {44 + 44100 * 4}
    headers = reads.count(0) - 8
    go_on.set()
    alone = Extent(Slow(data), 0, len(data))
    reads.clear()
    assert FORM.content(alone, span_detail(0, 1), LIMITS).size
    assert reads.count(0) - 1 == headers


def test_a_recording_that_cannot_be_read_is_read_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []

    class Counted(MemorySource):
        def read(self, offset: int, length: int) -> Buffer:
            reads.append(length)
            return super().read(offset, length)

    extent = Extent(Counted(b"no recording at all" * 100), 0, 1900)
    for _ in range(3):
        with pytest.raises(FormatError, match="not a recording"):
            _ = FORM.content(extent, span_detail(0), LIMITS).size
        with pytest.raises(FormatError, match="not a recording"):
            FORM.content(extent, span_detail(0), LIMITS).read(0, 10)
    assert [length for length in reads if length > 1] == [64]
    assert FORM.known_size(extent, span_detail(0), LIMITS) is None
    monkeypatch.setattr(results, "RETRY_SECONDS", -1.0)
    for count in (1, 2, 3):
        other = Extent(extent.source, 0, 1800)
        with pytest.raises(FormatError, match="not a recording"):
            _ = FORM.content(other, span_detail(0), LIMITS).size
        assert reads.count(64) == 1 + count


def test_a_failure_of_the_source_is_tried_again(mp3: Path) -> None:
    data = mp3.read_bytes()
    is_broken = True

    class Failing(MemorySource):
        def read(self, offset: int, length: int) -> Buffer:
            if is_broken and offset:
                raise SourceError("the disk is gone")
            return super().read(offset, length)

    made = FORM.content(Extent(Failing(data), 0, len(data)), span_detail(0, 1), LIMITS)
    with pytest.raises(SourceError, match="the disk is gone"):
        _ = made.size
    is_broken = False
    assert made.size == 44 + 44100 * 4


@pytest.mark.parametrize(
    "detail",
    [b"", bytes(15), b"[]", b'[["times",1,2]]', b'[["x",1,2,3]]', b'[["times","1",2,3]]', b'[["cut",NaN,1,0,1]]'],
)
def test_a_damaged_detail(detail: bytes) -> None:
    with pytest.raises(FormatError, match="index with --force"):
        FORM.content(extent_of(b""), detail, LIMITS)
