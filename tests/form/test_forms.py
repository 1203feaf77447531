"""Every form: its string in catalogs, its size, which is known without a read, and its content."""

import io
import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from conformance import MemorySource, check_reads
from hypothesis import given
from hypothesis import strategies as st
from interleaved_tars import make_tiff
from spans import span_detail

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent
from touchfs.form.beside import WHOLE, pcm_of, piece_of, span_of, whole_file
from touchfs.form.ordinals import pack_ordinal
from touchfs.form.recordings import Decoded, Pcm
from touchfs.form.unmeasured import Unmeasured
from touchfs.form.video.video_span import VideoSpan
from touchfs.format import holes
from touchfs.format.wav import build_header
from touchfs.interleaved.forms.document import text_detail
from touchfs.interleaved.forms.located import located_detail
from touchfs.interleaved.forms.sample_rows import rows_detail
from touchfs.interleaved.forms.tiff_frame import frame_detail
from touchfs.interleaved.forms.tiff_reencoded import reencoded_detail
from touchfs.limits import LIMITS, Limits
from touchfs.registry.forms import FORMS, parse_form
from touchfs.source.fingerprint import Fingerprint
from touchfs.tables.arrow.packed import packed_detail
from touchfs.tables.lance.forms import pack_video, video_rows
from touchfs.tables.rows.asset import asset_detail

RANGES = [
    "bytes",
    "wav/8000",
    "wav/16000/2",
    "wav/2147483647",
    "wav/8000/1/s24",
    "wav/8000/2/f64",
    "npy/<i2",
    "npy/<f8",
    "npy/<u2",
    "npy/|i1",
    "npy/<i8",
]
ARRAY = "npy/<i2/2/3"
# Of 50 samples
FILE, DECODED = whole_file("a.wav", Fingerprint(44 + 100, 5)), Decoded(8000, 1)
PCM_BESIDE, FILE_OF_PCM = pcm_of(Pcm(8000), FILE, 44)
DETAILS = {
    "inline": b"text",
    "sparse": holes.pack(20, [(4, 8)]),
    "decoded/8000/2": struct.pack("<qq", 3, 5),
    "decoded/8000/2/s24": struct.pack("<qq", 3, 5),
    "unmeasured": struct.pack("<dd", 0.5, 1),
    "video": span_detail(0.5, 1),
    "lilcom/2/3": b"",
    ARRAY: b"",
    "packed/zstd": packed_detail(2, 6),
    "packed/lz4/npy/<i2/3": packed_detail(2, 6),
    "row": pack_ordinal(3),
    "numbers/0.1/5/<i2/3": b"",
    "values/2/2.1": b"",
    "row/0/2.1": pack_ordinal(3),
    "lance/3": pack_ordinal(3),
    "lance/3.0/npy/<f4/2": pack_ordinal(3),
    "parquet/3": pack_ordinal(3),
    "parquet/3.0/npy/<f4/2": pack_ordinal(3),
    "parquet-list/2/<f4/3": pack_ordinal(3),
    "parquet-item/2.0.1/3": pack_ordinal(3),
    "lance-row": pack_ordinal(3),
    "lance-row/0/2.1": pack_ordinal(3),
    "lance-video/2/webp": pack_video(7, 3, {"key": "é"}),
    "asset": asset_detail("a.mp4", Fingerprint(44, 5)),
    "document": text_detail(1, b"text"),
    "tiff-frame": frame_detail(1, 100),
    "failed": b"it is gone",
    "tiff-reencoded": reencoded_detail(1),
    "sample-rows": rows_detail([0, 1, 5]),
    "sample-rows/0/2.1": rows_detail([7]),
    "located": located_detail('{"path": "a.jpg"}', 7, None),
    "beside/bytes": FILE,
    "beside/wav/8000": piece_of(PCM_BESIDE, DECODED, FILE_OF_PCM, 3, 5)[1],
    "beside/decoded/8000/1": piece_of(WHOLE, DECODED, FILE, 3, 5)[1],
    "beside/unmeasured": span_of(Unmeasured(), FILE, span_detail(3 / 8000, 8 / 8000))[1],
    "beside/video": span_of(VideoSpan(), FILE, span_detail(3, 5))[1],
}
PCM = np.arange(-4000, 4000, dtype="<i2")


def shown(form: str, data: bytes, detail: bytes = b"") -> Content:
    """A field's content, with neighbours in its source."""
    extent = Extent(MemorySource(b"before" + data + b"behind"), 6, len(data))
    return parse_form(form).content(extent, detail, LIMITS)


def test_every_form_is_tested() -> None:
    assert {form.partition("/")[0] for form in [*RANGES, *DETAILS]} == set(FORMS)


@pytest.mark.parametrize("form", [*RANGES, *DETAILS])
def test_a_form_is_parsed_from_its_string(form: str) -> None:
    parsed = parse_form(form)
    assert str(parsed) == form
    assert parsed == parse_form(form)
    assert len({parse_form(other) for other in [*RANGES, *DETAILS, form]}) == len(RANGES) + len(DETAILS)


@pytest.mark.parametrize("form", ["flac", "", "/", "what/1", "BYTES"])
def test_a_form_of_a_later_version(form: str) -> None:
    with pytest.raises(FormatError, match="does not know"):
        parse_form(form)


@pytest.mark.parametrize(
    "form",
    [
        *("bytes/", "bytes/1", "inline/x", "sparse/1", "wav", "wav/", "wav/x", "wav/0", "wav/-1", "wav/+8", "wav/08"),
        *("wav/8_000", "wav/ 8", "wav/8000/1", "wav/8000/0", "wav/8000/65536", "wav/4294967296", "wav/8000/2/2"),
        *("npy/", "npy/O", "npy/|O", "npy/x", "npy/i2", "npy/<i3", "npy/<V0", "npy/<i2,<i2", "npy/(2,f", "npy/<i2/"),
        *("npy/<i2/-1", "npy/<i2/+1", "npy/<i2/x", f"npy/<i2{'/1' * 33}", f"npy/<i2/{'9' * 5000}"),
        *("packed", "packed/", "packed/gzip", "packed/zstd/", "packed/zstd/bytes", "packed/zstd/inline"),
        *("packed/zstd/packed/zstd", "numbers", "numbers/0/5", "numbers/x/5/<i2"),
        *("values", "values/x", "row/", "row/-1"),
        *("decoded/8000", "decoded/0/1", "decoded/8000/0", "decoded/8000/1/1", "decoded/x/y", "decoded/8000/1/s16"),
        *("wav/8000/1/s16", "wav/8000/s24", "wav/8000/1/s20", "wav/8000/1/s24/x", "unmeasured/", "unmeasured/8000"),
        *("beside", "beside/", "beside/x", "beside/inline", "beside/beside/bytes", "beside/wav/0", "beside/bytes/"),
        *("lance", "lance/", "lance/x", "lance/-1", "lance/03", "lance/3.", "lance/3/bytes", "lance/3/inline"),
        *("lance/3/lance/3", "lance-row/", "lance-row/x", "lance-row/1.-1", "lance-video/2", "lance-video/2/"),
        *("lance-video/2/we.bp", "lance-video/2/webp/x"),
        *("parquet", "parquet/", "parquet/x", "parquet/-1", "parquet/3/bytes", "parquet/3/row", "parquet/3/parquet/3"),
        *("parquet-item", "parquet-item/2.0", "parquet-item/2/1", "parquet-item/2.0/-1", "parquet-item/2.0/x"),
        *("parquet-list", "parquet-list/2", "parquet-list/2/<f4", "parquet-list/-1/<f4/3", "parquet-list/2.0/<f4/3"),
        *("lilcom", "lilcom/", "lilcom/x", "lilcom/-1", "lilcom/1/", f"wav/{'9' * 5000}"),
    ],
)
def test_a_form_that_no_writer_writes(form: str) -> None:
    with pytest.raises(FormatError, match="damaged: index with --force"):
        parse_form(form)


@pytest.mark.parametrize("form", ["parquet/3", "parquet-list/3/<f4/2"])
@pytest.mark.parametrize("detail", [b"", b"x", bytes(15)])
def test_damaged_details_of_parquet(form: str, detail: bytes) -> None:
    with pytest.raises(FormatError, match="index with --force"):
        shown(form, bytes(100), detail)


@pytest.mark.parametrize("form", ["lance/3", "lance-row", "lance-video/2/webp"])
@pytest.mark.parametrize("detail", [b"", b"x", bytes(4), bytes(15)])
def test_damaged_details_of_lance(form: str, detail: bytes) -> None:
    with pytest.raises(FormatError, match="index with --force"):
        assert shown(form, bytes(100), detail).size


@pytest.mark.parametrize("form", ["sparse", "decoded/8000/1", "unmeasured", "packed/zstd"])
@pytest.mark.parametrize("detail", [b"", b"x", bytes(15), b"\xff" * 16, bytes(17), b"\xff" * 40])
def test_damaged_details(form: str, detail: bytes) -> None:
    with pytest.raises(FormatError, match="index with --force"):
        shown(form, bytes(100), detail)


@pytest.mark.parametrize("form", RANGES)
@pytest.mark.parametrize("size", [0, 8, 16, 4096])
def test_ranges(form: str, size: int) -> None:
    data = PCM.tobytes()[:size]
    made = shown(form, data)
    check_reads(made, bytes(shown(form, data).read(0, made.size)))
    assert made.size == parse_form(form).size(size, b"")
    assert bytes(made.read(made.size - size, size)) == data


def test_files_that_have_details() -> None:
    made = shown("inline", b"never read", b"text")
    check_reads(made, b"text")
    assert parse_form("inline").size(10, b"text") == 4
    video = DETAILS["lance-video/2/webp"]
    check_reads(shown("lance-video/2/webp", b"", video), '{"key": "é"}\n'.encode())
    assert video_rows(video) == range(7, 10) and parse_form("lance-video/2/webp").size(0, video) == 14
    made = shown("sparse", b"12345678", DETAILS["sparse"])
    check_reads(made, bytes(4) + b"12345678" + bytes(8))
    assert parse_form("sparse").size(8, DETAILS["sparse"]) == 20
    assert shown("decoded/8000/2", b"", DETAILS["decoded/8000/2"]).size == 44 + 5 * 4
    assert parse_form("decoded/8000/2").size(1, DETAILS["decoded/8000/2"]) == 44 + 5 * 4
    assert shown("lilcom/2/3", b"").size == parse_form("lilcom/2/3").size(1, b"") == 128 + 4 * 6


def test_parts_of_documents() -> None:
    made = shown("document", b'{"texts": [null, "text"], "images": []}', DETAILS["document"])
    check_reads(made, b"text")
    assert parse_form("document").size(9, DETAILS["document"]) == 4
    with pytest.raises(FormatError, match="index with --force"):
        shown("document", b'{"texts": ["another"]}', DETAILS["document"]).read(0, 4)
    with pytest.raises(FormatError, match="not JSON"):
        shown("document", b'{"texts": ["te', DETAILS["document"]).read(0, 4)


def test_frames_that_are_gone() -> None:
    for data in (b"", b"II*\0", make_tiff(1), make_tiff(3)):
        with pytest.raises(FormatError):
            shown("tiff-frame", data, DETAILS["tiff-frame"]).read(0, 4)
    with pytest.raises(FormatError, match="index with --force"):
        shown("tiff-frame", b"", b"x")
    for detail in (b"", b"x", bytes(7)):
        for form in ("tiff-reencoded", "sample-rows", "located"):
            with pytest.raises(FormatError, match="index with --force"):
                shown(form, b"", detail)
    with pytest.raises(FormatError, match="cannot be decoded"):
        shown("tiff-reencoded", make_tiff(1)[:-100], DETAILS["tiff-reencoded"]).read(0, 4)
    with pytest.raises(FormatError, match="it is gone"):
        shown("failed", b"", DETAILS["failed"])


def test_files_beside_the_shard(tmp_path: Path) -> None:
    samples = PCM[:50]
    soundfile.write(tmp_path / "a.wav", samples, 8000, "PCM_16")
    os.utime(tmp_path / "a.wav", ns=(5, 5))
    stored = (tmp_path / "a.wav").read_bytes()
    limits = Limits(audio_root=str(tmp_path))
    for form, data in (
        ("beside/bytes", stored),
        ("beside/wav/8000", build_header(10, 8000) + samples[3:8].tobytes()),
        ("beside/decoded/8000/1", build_header(10, 8000) + samples[3:8].tobytes()),
        ("beside/unmeasured", build_header(10, 8000) + samples[3:8].tobytes()),
    ):
        made = parse_form(form).content(Extent(MemorySource(b""), 0, 0), DETAILS[form], limits)
        check_reads(made, data)
        assert parse_form(form).size(0, DETAILS[form]) == (None if "unmeasured" in form else len(data))
        assert parse_form(form).known_size(Extent(MemorySource(b""), 0, 0), DETAILS[form], limits) == len(data)
        with pytest.raises(FormatError, match="--audio-root"):
            shown(form, b"", DETAILS[form])
        for damaged in (b"", DETAILS[form][:40], b"\xff" * 48 + b"a.wav"):
            with pytest.raises(FormatError, match="damaged"):
                parse_form(form).size(0, damaged)


def test_only_recordings_have_a_duration() -> None:
    timings = {form: parse_form(form).timing(40, DETAILS.get(form, b"")) for form in [*RANGES, *DETAILS]}
    assert {form: timing[:2] for form, timing in timings.items() if timing is not None} == {
        "wav/8000": (20, 8000),
        "wav/16000/2": (10, 16000),
        "wav/2147483647": (20, 2147483647),
        "wav/8000/1/s24": (13, 8000),
        "wav/8000/2/f64": (2, 8000),
        "decoded/8000/2": (5, 8000),
        "decoded/8000/2/s24": (5, 8000),
        "beside/wav/8000": (5, 8000),
        "beside/decoded/8000/1": (5, 8000),
    }


def test_other_programs_read_the_files() -> None:
    made = shown("wav/8000", PCM.tobytes())
    with wave.open(io.BytesIO(made.read(0, made.size))) as opened:
        assert (opened.getframerate(), opened.getnchannels(), opened.getsampwidth()) == (8000, 1, 2)
        assert opened.readframes(10**6) == PCM.tobytes()
    samples, rate = soundfile.read(io.BytesIO(made.read(0, made.size)), dtype="int16")
    assert rate == 8000
    assert np.array_equal(samples, PCM)
    made = shown("npy/<i2", PCM.tobytes())
    assert np.array_equal(np.load(io.BytesIO(made.read(0, made.size))), PCM)


@given(st.sampled_from(RANGES), st.integers(0, 2**40))
def test_sizes_are_known_without_a_read(form: str, count: int) -> None:
    nothing_to_read = Extent(MemorySource(b""), 0, count * 8)
    assert parse_form(form).content(nothing_to_read, b"", LIMITS).size == parse_form(form).size(count * 8, b"")
