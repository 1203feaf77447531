import io
import struct
import wave
from collections.abc import Sequence

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import FormatError
from touchfs.core.extent import Memory, drive
from touchfs.format.wav import Wav, build_header, header_size, scan, scan_cut


def run(data: bytes, size: int | None = None) -> Wav:
    """Scan the data, as the beginning of a file of this size; every request must lie in the file."""
    size = len(data) if size is None else size
    plan = scan(size)
    try:
        offset, length = next(plan)
        while True:
            assert offset >= 0
            assert length > 0
            assert offset + length <= size
            offset, length = plan.send(memoryview(data)[offset : offset + length])
    except StopIteration as stop:
        assert isinstance(stop.value, Wav)
        return stop.value


def chunk(name: bytes, body: bytes, length: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if length is None else length) + body + bytes(len(body) % 2)


def riff(*chunks: bytes, form: bytes = b"RIFF", length: int | None = None) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return form + struct.pack("<I", len(body) if length is None else length) + body


def fmt(codec: int = 1, channels: int = 1, rate: int = 16000, bits: int = 16) -> bytes:
    return chunk(b"fmt ", struct.pack("<HHIIHH", codec, channels, rate, 0, 0, bits))


@given(st.binary(max_size=99), st.integers(1, 192_000), st.integers(1, 8), st.sampled_from([8, 16, 24, 32]))
def test_canonical_header(data: bytes, rate: int, channels: int, bits: int) -> None:
    data = data[: len(data) // (channels * bits // 8) * (channels * bits // 8)]
    made = io.BytesIO()
    with wave.open(made, "wb") as writer:
        writer.setparams((channels, bits // 8, rate, 0, "NONE", ""))
        writer.writeframes(data)
    header = build_header(len(data), rate, channels, bits)
    assert len(header) == header_size(len(data)) == 44
    assert header + data == made.getvalue()
    assert run(header + data) == Wav(rate, channels, bits, 1, channels * bits // 8, 44, len(data))


@pytest.mark.parametrize("data_size", [2**32 - 37, 2**32 - 36, 2**32, 2**40])
def test_long_data_becomes_rf64(data_size: int) -> None:
    header = build_header(data_size, 16000)
    assert len(header) == header_size(data_size)
    assert header[:4] == (b"RIFF" if data_size == 2**32 - 37 else b"RF64")
    assert run(header + bytes(5000), len(header) + data_size) == Wav(16000, 1, 16, 1, 2, len(header), data_size)


def test_rf64_of_libsndfile() -> None:
    made = io.BytesIO()
    soundfile.write(made, np.arange(100, dtype=np.int16), 8000, format="RF64", subtype="PCM_16")
    found = run(made.getvalue())
    assert (found.rate, found.channels, found.bits, found.codec, found.data_size) == (8000, 1, 16, 1, 200)
    assert made.getvalue()[found.data_offset :][:200] == np.arange(100, dtype="<i2").tobytes()


def test_libsndfile_reads_our_rf64() -> None:
    # Its ds64 says what the header of a small file would: only the form differs.
    data = np.arange(100, dtype="<i2").tobytes()
    big = build_header(2**32, 16000)
    sizes = struct.pack("<QQQ", 72 + len(data), len(data), 100)
    read, rate = soundfile.read(io.BytesIO(big[:20] + sizes + big[44:] + data), dtype="int16")
    assert rate == 16000
    assert read.tobytes() == data


@pytest.mark.parametrize(
    "before",
    [
        [chunk(b"LIST", b"INFOISFT\x04\0\0\0abc\0"), fmt()],
        [chunk(b"bext", bytes(603)), fmt(), chunk(b"odd ", b"123")],
        [fmt(), chunk(b"JUNK", bytes(70_001))],
        [chunk(b"JUNK", bytes(4076)), fmt()],
    ],
)
def test_chunks_before_the_data(before: Sequence[bytes]) -> None:
    data = riff(*before, chunk(b"data", b"12345678"), chunk(b"LIST", b"after"))
    found = run(data)
    assert data[found.data_offset : found.data_offset + found.data_size] == b"12345678"


@pytest.mark.parametrize(("codec", "bits", "subtype"), [(1, 24, "PCM_24"), (3, 32, "FLOAT")])
def test_extensible(codec: int, bits: int, subtype: str) -> None:
    made = io.BytesIO()
    soundfile.write(made, np.zeros((10, 6)), 48000, format="WAVEX", subtype=subtype)
    assert struct.unpack_from("<H", made.getvalue(), 20) == (0xFFFE,)
    found = run(made.getvalue())
    assert (found.codec, found.bits, found.channels) == (codec, bits, 6)


@pytest.mark.parametrize("length", [0, 0xFFFFFFFF, 0x7FFFF000])
def test_streamed(length: int) -> None:
    data = riff(fmt(), chunk(b"data", b"123456", length), length=0xFFFFFFFF)
    assert run(data) == Wav(16000, 1, 16, 1, 0, 44, 6)


@pytest.mark.parametrize("length", [10**9, 2 * 10**9, 2**31 - 1, 2**31, 2**32 - 41, 1 << 29])
def test_a_placeholder_is_any_size_that_nobody_has(length: int) -> None:
    data = riff(fmt(), chunk(b"data", b"123456", length), length=length + 36)
    assert run(data) == drive(scan_cut(len(data)), Memory(data)) == Wav(16000, 1, 16, 1, 0, 44, 6)


def test_a_file_that_is_cut_short_has_what_is_there() -> None:
    data = riff(fmt(), chunk(b"data", b"123456", 10))
    assert drive(scan_cut(len(data)), Memory(data)) == Wav(16000, 1, 16, 1, 0, 44, 6, missing=4)
    with pytest.raises(FormatError, match="10 bytes and is cut short after 6"):
        run(data)


def test_streamed_beyond_4_gib() -> None:
    data = riff(fmt(), chunk(b"data", bytes(5000), 0xFFFFFFFF), length=0xFFFFFFFF)
    assert run(data, 2**33).data_size == 2**33 - 44


def test_no_samples() -> None:
    assert run(build_header(0, 16000)) == Wav(16000, 1, 16, 1, 2, 44, 0)
    assert run(riff(fmt(), chunk(b"data", b""), chunk(b"LIST", b"after"))).data_size == 0


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (b"", 0, "too short"),
        (b"RIFF", 4, "too short"),
        (b"fLaC" + bytes(40), 0, "not a WAV"),
        (b"RIFX" + riff(fmt())[4:], 0, "not a WAV"),
        (riff(fmt()), 36, "ends before its data"),
        (riff(fmt(), chunk(b"LIST", b"", 500)), 44, "ends before its data"),
        (riff(chunk(b"data", b"12"), fmt()), 12, "before its format"),
        (riff(fmt(), chunk(b"data", b"1234", 6)), 36, "cut short after 4"),
        (riff(chunk(b"fmt ", b"\1\0\1\0"), chunk(b"data", b"")), 20, "at least 16"),
        (riff(fmt(channels=0), chunk(b"data", b"")), 20, "0 channels"),
        (riff(fmt(rate=0), chunk(b"data", b"")), 20, "at 0 Hz"),
        (riff(*[chunk(b"JUNK", b"")] * 2000), 12 + 8000, "first 1000"),
    ],
)
def test_refusals(data: bytes, offset: int, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        run(data)
    assert caught.value.offset == offset


def test_a_file_that_shrinks_while_it_is_scanned() -> None:
    with pytest.raises(FormatError):
        run(riff(fmt(), chunk(b"JUNK", bytes(9000)))[:5000], 10_000)
    with pytest.raises(FormatError):
        run(b"", 10_000)


VALID = riff(
    chunk(b"ds64", struct.pack("<QQQI", 90, 6, 3, 0)), fmt(), chunk(b"data", b"123456", 2**32 - 1), form=b"RF64"
)


@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda tail: riff(fmt()) + tail))
def test_any_bytes(data: bytes) -> None:
    check_hostile(data)


@given(st.integers(0, len(VALID) - 1), st.integers(1, 255), st.integers(0, len(VALID)))
def test_any_flipped_byte_or_cut(position: int, change: int, size: int) -> None:
    data = bytearray(VALID)
    data[position] ^= change
    check_hostile(bytes(data))
    check_hostile(bytes(data[:size]))


def check_hostile(data: bytes) -> None:
    try:
        found = run(data)
    except FormatError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= len(data)
    else:
        assert 0 <= found.data_offset <= found.data_offset + found.data_size <= len(data)
        assert found.rate > 0
        assert found.channels > 0


@given(st.integers(), st.integers(), st.integers(), st.integers())
def test_any_numbers_for_a_header(data_size: int, rate: int, channels: int, bits: int) -> None:
    try:
        header = build_header(data_size, rate, channels, bits)
    except FormatError:
        return
    assert len(header) == header_size(data_size)


@pytest.mark.parametrize(
    "numbers", [(10, 0, 1, 16), (10, 2**40, 1, 16), (-1, 1, 1, 16), (0, 1, 2**16, 16), (0, 1, 1, 4)]
)
def test_numbers_no_header_can_say(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(FormatError, match="no WAV header"):
        build_header(*numbers)
