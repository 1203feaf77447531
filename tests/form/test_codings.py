"""Files of pieces of recordings in every coding: the samples of a full decode, with the source's bit depth."""

import io
import struct
import subprocess
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from conformance import MemorySource, check_reads
from recordings import (
    SECONDS,
    bytes_by_command,
    decode_all,
    decode_by_command,
    make,
    make_all,
    make_amr,
    to_16_bits,
)
from spans import span_detail

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Extent
from touchfs.form.lengths import info_of
from touchfs.form.recordings import Decoded, piece_detail
from touchfs.form.unmeasured import Unmeasured
from touchfs.limits import LIMITS, Limits
from touchfs.media.coding.sample_format import WIDTHS

WINDOW = 70_001  # a piece has several, which begin anywhere
LOSSLESS = {
    "u8.wav": ("u8", "-c:a", "pcm_u8"),
    "s16.wav": ("s16", "-c:a", "pcm_s16le"),
    "s24.wav": ("s24", "-c:a", "pcm_s24le"),
    "s32.wav": ("s32", "-c:a", "pcm_s32le"),
    "f32.wav": ("f32", "-c:a", "pcm_f32le"),
    "f64.wav": ("f64", "-c:a", "pcm_f64le"),
    "s16.flac": ("s16", "-sample_fmt", "s16"),
    "s24.flac": ("s24", "-sample_fmt", "s32", "-bits_per_raw_sample", "24"),
    "s16.m4a": ("s16", "-c:a", "alac", "-sample_fmt", "s16p"),
}
# The greatest difference to a full decode by the same libav, and by the command's, which is another version of it.
LOSSY = {
    "a.mp3": (0, 1, "-b:a", "64k"),
    "a.ogg": (0, 1, "-c:a", "libvorbis"),
    "a.opus": (1, 1, "-c:a", "libopus", "-b:a", "48k"),
    "a.m4a": (0, 1, "-c:a", "aac", "-b:a", "128k", "-aac_pns", "0"),
}
RAW = {"u8": "u8", "s16": "s16le", "s24": "s24le", "s32": "s32le", "f32": "f32le", "f64": "f64le"}
# Each with a number of channels.
IN_TURN, LOSSY_IN_TURN = (list(zip(names, cycle((1, 2)), strict=False)) for names in (LOSSLESS, LOSSY))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the recordings of each coding."""
    place = tmp_path_factory.mktemp("recordings")
    make_all(place, [(f"{channels}-{name}", 16000, channels, LOSSLESS[name][1:]) for name, channels in IN_TURN])
    make_all(place, [(f"{channels}-{name}", 48000, channels, LOSSY[name][2:]) for name, channels in LOSSY_IN_TURN])
    return place


@pytest.fixture(scope="module")
def by_command(directory: Path) -> dict[str, bytes]:
    """What the command decodes of them, by name."""
    rows = [(directory / f"{channels}-{name}", ("-f", RAW[LOSSLESS[name][0]])) for name, channels in IN_TURN]
    rows += [(directory / f"{channels}-{name}", ("-f", "s16le")) for name, channels in LOSSY_IN_TURN]
    return {path.name: decoded for (path, _), decoded in zip(rows, bytes_by_command(rows), strict=True)}


def in_a_shard(data: bytes) -> Extent:
    return Extent(MemorySource(b"before" + data + b"behind"), 6, len(data))


def files(extent: Extent, rate: int, channels: int, sample_format: str, first: int, length: int) -> list[bytes]:
    """The same piece by the forms of a recording of known length and of one of unknown length."""
    decoded, detail = Decoded(rate, channels, sample_format), piece_detail(first, length)
    content = decoded.content(extent, detail, Limits(window=WINDOW))
    made = bytes(content.read(0, content.size))
    assert len(made) == content.size == decoded.size(extent.size, detail)
    check_reads(content, made)
    seconds = span_detail(first / rate, (first + length) / rate)
    content = Unmeasured().content(extent, seconds, Limits(window=WINDOW))
    assert content.size == Unmeasured().known_size(extent, seconds, LIMITS)
    return [made, bytes(content.read(0, content.size))]


@pytest.mark.parametrize(("name", "channels"), IN_TURN)
def test_lossless_codings_keep_all_bits(
    directory: Path, by_command: dict[str, bytes], name: str, channels: int
) -> None:
    sample_format, path = LOSSLESS[name][0], directory / f"{channels}-{name}"
    whole = by_command[path.name]
    frame_size = WIDTHS[sample_format] * channels
    assert len(whole) == SECONDS * 16000 * frame_size
    for first, length in [(0, 16000), (12_345, 54_321), (SECONDS * 16000 - 7, 7)]:
        for made in files(in_a_shard(path.read_bytes()), 16000, channels, sample_format, first, length):
            assert made[44:] == whole[first * frame_size : (first + length) * frame_size]
            codec, found_channels, rate, _, found_size, bits = struct.unpack("<HHIIHH", made[20:36])
            assert (codec, bits) == (3 if sample_format[0] == "f" else 1, 8 * WIDTHS[sample_format])
            assert (found_channels, rate, found_size) == (channels, 16000, frame_size)


@pytest.mark.parametrize(("name", "channels"), LOSSY_IN_TURN)
def test_lossy_codings_have_16_bits(directory: Path, by_command: dict[str, bytes], name: str, channels: int) -> None:
    difference, difference_of_command, *_ = LOSSY[name]
    path = directory / f"{channels}-{name}"
    whole, theirs = to_16_bits(decode_all(path)), np.frombuffer(by_command[path.name], "<i2").reshape(-1, channels)
    extent = in_a_shard(path.read_bytes())
    frames = info_of(extent, LIMITS).frames
    assert len(theirs) == frames
    for first, length in [(0, 48_000), (123_456, 234_567), (frames - 7, 7)]:
        for made in files(extent, 48000, channels, "s16", first, length):
            piece = np.frombuffer(made[44:], "<i2").reshape(-1, channels).astype(int)
            assert np.abs(piece - whole[first : first + length]).max() <= difference
            assert np.abs(piece - theirs[first : first + length]).max() <= difference_of_command


def test_amr(directory: Path) -> None:
    path = make_amr(directory)
    whole = to_16_bits(decode_all(path))
    for made in files(in_a_shard(path.read_bytes()), 8000, 1, "s16", 30_000, 20_000):
        assert np.abs(np.frombuffer(made[44:], "<i2") - whole[30_000:50_000, 0].astype(int)).max() <= 1


@pytest.mark.parametrize("sample_format", ["s16", "f32"])
def test_another_sample_format_than_that_of_the_recording(directory: Path, sample_format: str) -> None:
    """As catalogs have it that were made when all pieces had 16 bits."""
    path = make(directory, "another.flac", 16000, 1, "-sample_fmt", "s32", "-bits_per_raw_sample", "24")
    whole = decode_all(path) / 2.0**31
    content = Decoded(16000, 1, sample_format).content(in_a_shard(path.read_bytes()), piece_detail(100, 50_000), LIMITS)
    made = bytes(content.read(44, content.size))
    expected = {"s16": np.rint(whole * 2**15).astype("<i2"), "f32": whole.astype("<f4")}[sample_format]
    assert made == expected[100:50_100].tobytes()


@pytest.mark.parametrize(
    ("sample_format", "silence"), [("u8", b"\x80"), ("s16", b"\0"), ("s24", b"\0"), ("f32", b"\0")]
)
def test_a_recording_shorter_than_declared_ends_in_silence(directory: Path, sample_format: str, silence: bytes) -> None:
    path = make(directory, "short.flac", 16000, 1, "-sample_fmt", "s16")
    extent, frames, width = in_a_shard(path.read_bytes()), SECONDS * 16000, WIDTHS[sample_format]
    whole, piece, after = (
        bytes(content.read(44, content.size))
        for first, length in [(0, frames), (frames - 1000, 3000), (frames + 100, 50)]
        for content in [Decoded(16000, 1, sample_format).content(extent, piece_detail(first, length), LIMITS)]
    )
    assert piece == whole[-1000 * width :] + silence * (2000 * width)
    assert after == silence * (50 * width)


@pytest.mark.parametrize(("rate", "channels"), [(16000, 1), (8000, 2), (44100, 2)])
def test_a_rate_that_only_the_manifest_has(directory: Path, rate: int, channels: int) -> None:
    """Opus is always decoded at 48,000 Hz. Lhotse describes it with the rate of what was encoded."""
    path = make(directory, f"{channels}-rate.opus", 48000, channels, "-c:a", "libopus", "-b:a", "96k")
    extent, frames = in_a_shard(path.read_bytes()), SECONDS * rate
    form = Decoded(rate, channels)
    content = form.content(extent, piece_detail(0, frames), LIMITS)
    whole = np.frombuffer(content.read(44, content.size), "<i2").reshape(-1, channels)
    raw = ["-f", "f32le", "-ar", str(rate), "-"]
    command = subprocess.run(["ffmpeg", "-v", "error", "-i", path, *raw], capture_output=True, check=True).stdout
    expected = np.frombuffer(command, "<f4").reshape(-1, channels)[: len(whole)]
    assert np.abs(whole[: len(expected)] / 32768 - expected).max() < 0.001
    for first, length in [(0, 5000), (1, 5000), (rate + 1, 2 * rate), (frames - 500, 500)]:
        content = form.content(extent, piece_detail(first, length), Limits(window=WINDOW))
        piece = np.frombuffer(content.read(44, content.size), "<i2").reshape(-1, channels).astype(int)
        assert np.abs(piece - whole[first : first + length]).max() <= 1


def test_more_than_one_request(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long window, at the rate of the recording and at another."""
    monkeypatch.setattr("touchfs.media.slices.read_slice._VALUES_MAX", 200_000)
    extent = in_a_shard(make(directory, "2-long.opus", 48000, 2, "-c:a", "libopus").read_bytes())
    for rate in (48000, 44100):
        form, length = Decoded(rate, 2), SECONDS * rate
        large = form.content(extent, piece_detail(0, length), Limits(window=10**9))
        made = np.frombuffer(large.read(44, large.size), "<i2").astype(int)
        small = form.content(extent, piece_detail(length // 2, rate), LIMITS)
        piece = np.frombuffer(small.read(44, small.size), "<i2")
        assert np.abs(made[length : length + 2 * rate] - piece).max() <= 1


@pytest.fixture(scope="module")
def long_flac(directory: Path) -> Path:
    """Three minutes at 8 kHz."""
    path = directory / "long.flac"
    source = "anoisesrc=r=8000:d=180:seed=1"
    subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-sample_fmt", "s16", path], check=True)
    return path


@pytest.mark.parametrize("form", ["decoded", "unmeasured"])
def test_a_piece_of_a_long_flac_reads_little_of_it(long_flac: Path, form: str) -> None:
    path, rate = long_flac, 8000
    data, read = path.read_bytes(), []

    class Counted(MemorySource):
        def read(self, offset: int, length: int) -> Buffer:
            read.append(length)
            return super().read(offset, length)

    extent, first = Extent(Counted(data), 0, len(data)), 150 * rate
    if form == "decoded":
        content = Decoded(rate, 1).content(extent, piece_detail(first, 5 * rate), LIMITS)
    else:
        content = Unmeasured().content(extent, span_detail(150, 155), LIMITS)  # type: ignore[assignment]
    made = content.read(44, content.size)
    assert made == decode_by_command(path, 1)[first : first + 5 * rate].tobytes()
    assert sum(read) < len(data) / 4


@pytest.mark.parametrize("name", ["a.mp3", "a.ogg", "a.opus", "a.m4a", "s16.flac"])
def test_hostile_files_are_errors_and_the_next_ones_are_read(directory: Path, name: str) -> None:
    options = LOSSY[name][2:] if name in LOSSY else LOSSLESS[name][1:]
    data = make(directory, f"hostile-{name}", 48000, 1, *options).read_bytes()
    good = in_a_shard(data)
    content = Unmeasured().content(good, span_detail(1, 2), LIMITS)
    expected = bytes(content.read(0, content.size))
    rng, errors = np.random.default_rng(0), 0
    for number in range(12):
        damaged = bytearray(data)
        for place in rng.integers(40, len(data), 10 ** (1 + number % 4)):
            damaged[place] ^= 0xFF
        hostile = in_a_shard(bytes(damaged[: len(data) if number % 2 else len(data) // 2]))
        for made in (
            Decoded(48000, 1).content(hostile, piece_detail(48000, 48000), LIMITS),
            Unmeasured().content(hostile, span_detail(1, 2), LIMITS),
        ):
            try:
                assert len(made.read(0, made.size)) == made.size
            except FormatError as error:
                assert "\n" not in str(error)
                errors += 1
    assert errors
    content = Unmeasured().content(good, span_detail(1, 2), Limits(window=50_000))
    assert bytes(content.read(0, content.size)) == expected


def test_what_takes_too_long_is_a_timeout(directory: Path) -> None:
    extent = in_a_shard(make(directory, "slow.opus", 48000, 2).read_bytes())
    frames = info_of(extent, LIMITS).frames
    form, detail = Decoded(48000, 2), piece_detail(0, frames)
    with pytest.raises(FormatError, match="decoding takes over 1e-06 s, the limit"):
        form.content(extent, detail, Limits(decode_seconds=1e-6)).read(44, 10)
    content = form.content(extent, detail, LIMITS)
    assert len(io.BytesIO(content.read(0, content.size)).getvalue()) == content.size


def test_another_number_of_channels_than_expected(directory: Path) -> None:
    extent = in_a_shard(make(directory, "stereo.flac", 16000, 2).read_bytes())
    with pytest.raises(FormatError, match="a recording of 2 channels where 1 were expected"):
        Decoded(16000, 1).content(extent, piece_detail(0, 10), LIMITS).read(44, 10)
