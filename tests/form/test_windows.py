"""Recordings that are decoded in windows: any range of them is what a decode of all of it gives."""

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conformance import MemorySource, check_reads
from recordings import decode_all, to_16_bits

from touchfs.core.errors import FormatError, MissingExtraError, SourceError
from touchfs.core.extent import Buffer, Content, Extent
from touchfs.form.computed import KEPT_BYTES, ComputedContent
from touchfs.form.recordings import Decoded, piece_detail
from touchfs.limits import Limits
from touchfs.media.decoder import shared
from touchfs.media.decoder.pool import DecodePool

RATE = 16000


def coded(kind: str, channels: int, frames: int = 30_011) -> bytes:
    sound = np.random.default_rng(channels).uniform(-0.5, 0.5, (frames, channels))
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, channels, format=kind) as writer:
        for start in range(0, frames, 1000):  # libsndfile cannot take much of Ogg at once
            writer.write(sound[start : start + 1000])
    return file.getvalue()


def shown(data: bytes, channels: int, first: int, length: int, window: int) -> Content:
    form, detail = Decoded(RATE, channels), piece_detail(first, length)
    content = form.content(Extent(MemorySource(b"before" + data), 6, len(data)), detail, Limits(window=window))
    assert content.size == form.size(len(data), detail)
    return content


@pytest.mark.parametrize("kind", ["FLAC", "WAV", "OGG"])
@pytest.mark.parametrize(("channels", "window"), [(1, 1), (1, 50_000), (2, 4097), (2, 10**9)])
def test_any_range_is_that_of_all_of_it(kind: str, channels: int, window: int) -> None:
    data = coded(kind, channels)
    first, length = (29_800, 200) if window == 1 else (1000, 28_000)
    whole = to_16_bits(decode_all(io.BytesIO(data)))[first : first + length]
    made = shown(data, channels, first, length, window)
    header = bytes(made.read(0, 44))
    if window == 1:  # a window a frame
        assert bytes(made.read(0, made.size)) == header + whole.astype("<i2").tobytes()
    else:
        check_reads(made, header + whole.astype("<i2").tobytes())


def test_the_header_needs_no_decoding() -> None:
    made = shown(b"no recording", 1, 0, 2**20, 1000)
    assert soundfile.info(io.BytesIO(bytes(made.read(0, 44)) + bytes(8))).samplerate == RATE
    with pytest.raises(FormatError, match="not a recording"):
        made.read(44, 1)


def test_what_is_missing_without_pyav(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Coded recordings need it. PCM does not."""
    (tmp_path / "av.py").write_text("raise ImportError('no PyAV here')")
    monkeypatch.syspath_prepend(tmp_path)
    with DecodePool() as pool:
        monkeypatch.setattr(shared, "shared_pool", lambda timeout: pool)
        with pytest.raises(MissingExtraError, match=r"needs the media extra \(no PyAV here.*touchfs-shards\[media\]"):
            shown(coded("FLAC", 1), 1, 0, 1000, 1000).read(44, 1)
        wav = coded("WAV", 1)
        assert bytes(shown(wav, 1, 0, 1000, 1000).read(0, 2044)[44:]) == wav[44:2044]


def test_only_windows_that_are_read_are_computed() -> None:
    asked = []

    def render(offset: int, length: int) -> bytes:
        asked.append((offset, length))
        return bytes([offset // 10]) * length

    made = ComputedContent(95, 10, render)
    assert made.read_nowait(12, 3) is None
    assert made.read(8, 4) == bytes([0, 0, 1, 1])
    assert made.read_nowait(12, 3) == bytes([1, 1, 1])
    assert made.read_nowait(12, 30) is None
    assert made.read(94, 99) == bytes([9])
    assert (made.read(95, 1), made.read_nowait(95, 1)) == (b"", b"")
    assert asked == [(0, 10), (10, 10), (90, 5)]


def test_a_window_is_computed_once_for_many_readers() -> None:
    asked = []
    made = ComputedContent(1000, 1000, lambda offset, length: asked.append(offset) or bytes(length))  # type: ignore[func-returns-value]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda number: made.read(number, 10), range(100))) == {bytes(10)}
    assert asked == [0]


def test_what_is_kept_is_bounded() -> None:
    asked = []

    def render(offset: int, length: int) -> bytes:
        asked.append(offset)
        return bytes(length)

    size = KEPT_BYTES // 4
    made = ComputedContent(8 * size, size, render)
    for _ in range(2):
        for number in range(8):
            made.read(number * size, 1)
    assert len(asked) == 16


def test_an_error_of_the_source_is_the_readers_error(capfd: pytest.CaptureFixture[str]) -> None:
    data = coded("FLAC", 1)

    class Failing(MemorySource):
        def read(self, offset: int, length: int) -> Buffer:
            if offset > 6 + len(data) // 2:
                raise SourceError("the disk is gone")
            return super().read(offset, length)

    source = Failing(b"before" + data)
    made = Decoded(RATE, 1).content(Extent(source, 6, len(data)), piece_detail(0, 30_011), Limits(window=1000))
    assert len(made.read(44, 100)) == 100
    with pytest.raises(SourceError, match="the disk is gone"):
        made.read(60_000, 10)
    assert capfd.readouterr().err == ""
