import io
import json
import wave
from typing import Any

import numpy as np
import pytest
from conformance import MemorySource, check_reads
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.extent import Content, Extent
from touchfs.form.base import Form
from touchfs.form.plain import BYTES
from touchfs.form.recordings import Pcm
from touchfs.format.metainfo import Metainfo, parse_metainfo
from touchfs.format.wav import build_header
from touchfs.limits import LIMITS
from touchfs.segments.json_rules import segments_of_json
from touchfs.shard.sample import Field, SampleSegments, StoredSample
from touchfs.view import raw, segments
from touchfs.view.file import ViewFile

PCM = np.arange(-4000, 4000, dtype="<i2")
WAV = Pcm(8000)


def content(file: ViewFile, source: MemorySource) -> Content:
    return file.field.form.content(Extent(source, file.field.offset, file.field.size), file.field.detail, LIMITS)


def field(name: str, extension: str, form: Form = BYTES, offset: int = 0, size: int = 10) -> Field:
    return Field(name, f"{name}.bin", offset, size, form, extension)


def speech(told: dict[str, Any], size: int = len(PCM) * 2, form: Form = WAV) -> StoredSample:
    metainfo = parse_metainfo(json.dumps(told).encode())
    fields = {"audio": field("audio", "wav", form, 100, size), "metainfo": field("metainfo", "json")}
    return StoredSample("utt", 3, fields, metainfo)


def test_raw_shows_every_field_and_the_text() -> None:
    assert [(file.extension, file.size) for file in raw.files(speech({"txt": "hé"}, 20))] == [
        ("wav", 64),
        ("json", 10),
        ("txt", 3),
    ]
    assert [file.extension for file in raw.files(speech({"txt": ""}))] == ["wav", "json", "txt"]
    assert [file.extension for file in raw.files(speech({}))] == ["wav", "json"]
    assert raw.files(StoredSample("x", 0, {})) == []


def test_fields_of_one_extension_are_told_apart() -> None:
    fields = {
        name: field(name, extension) for name, extension in [("audio", "wav"), ("image", "bin"), ("video", "bin")]
    }
    fields["wavs"] = field("wavs", "wav")
    assert [file.extension for file in raw.files(StoredSample("x", 0, fields))] == [
        "wav",
        "bin",
        "video.bin",
        "wavs.wav",
    ]


def test_half_a_surrogate_pair_becomes_one_mark() -> None:
    [*_, text] = raw.files(speech({"txt": "a\ud83db😀"}))
    assert text.field.detail == "a\ufffdb😀".encode()


def shown(sample: StoredSample) -> list[ViewFile]:
    """The files of the segments in the metainfo of a sample."""
    found = segments_of_json(sample.metainfo.fields)
    return list(segments.files(sample, found and SampleSegments(sample.fields["metainfo"], *found)))


def segmented(*stored: dict[str, Any], **others: Any) -> dict[str, ViewFile]:
    files = shown(speech({"info": {"segments": stored}}, **others))
    return {file.extension: file for file in files}


def test_a_segment_is_a_few_files() -> None:
    files = segmented({"start": 0.25, "end": 0.5, "txt": "hello", "paraformer": "é"}, {"start": 0.5, "end": -1})
    assert list(files) == ["0000.wav", "0000.json", "0000.txt", "0000.paraformer.txt", "0001.wav", "0001.json"]
    assert files["0000.txt"].field.detail == b"hello"
    assert files["0000.paraformer.txt"].field.detail == "é".encode()
    assert json.loads(files["0000.json"].field.detail) == {
        "start": 0.25,
        "end": 0.5,
        "txt": "hello",
        "paraformer": "é",
        "touchfs": {"key": "utt", "segment": 0, "sample_rate": 8000, "offset": 2000, "length": 2000},
    }
    assert "é" in files["0000.json"].field.detail.decode(), "escaped: grep would not find it"
    source = MemorySource(bytes(100) + PCM.tobytes() + b"neighbour")
    for name, start, end in (("0000.wav", 2000, 4000), ("0001.wav", 4000, 8000)):
        check_reads(content(files[name], source), build_header(end - start << 1, 8000) + PCM[start:end].tobytes())
        assert files[name].field.note == ""


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [(0.5, 99, 4000, 8000), (-1, 0.5, 0, 4000), (99, 100, 0, 0), (0.5, 0.5, 0, 0), (0.5, 0.1, 0, 0), ("x", None, 0, 0)],
)
def test_a_segment_that_does_not_fit_says_so(start: Any, end: Any, first: int, last: int) -> None:
    files = segmented({"start": start, "end": end})
    made = content(files["0000.wav"], MemorySource(bytes(100) + PCM.tobytes() + b"neighbour"))
    with wave.open(io.BytesIO(made.read(0, made.size))) as opened:
        assert opened.readframes(10**6) == PCM[first:last].tobytes()
    assert json.loads(files["0000.json"].field.detail)["touchfs"]["problem"]
    assert files["0000.wav"].field.note == segments.NOTE


def test_samples_without_segments_or_audio() -> None:
    assert shown(speech({})) == shown(speech({"info": {"segments": []}})) == []
    metainfo = parse_metainfo(json.dumps({"info": {"segments": [{"start": 0, "end": 1, "txt": "a"}]}}).encode())
    for extension, reason in (
        (None, "the sample has no recording"),
        ("jpg", "the sample has no recording"),
        ("pcm", "no parts can be cut out of its recording, .pcm"),
    ):
        fields = {"metainfo": field("metainfo", "json")} | ({"data": field("data", extension)} if extension else {})
        described, text = shown(StoredSample("x", 0, fields, metainfo))
        assert (described.extension, text.extension, text.field.detail) == ("0000.json", "0000.txt", b"a")
        assert json.loads(described.field.detail) == {
            "start": 0,
            "end": 1,
            "txt": "a",
            "touchfs": {"key": "x", "segment": 0, "problem": reason},
        }


@pytest.mark.parametrize("depth", [100, 300, 450, 700, 900])
def test_a_segment_nested_so_deep_that_it_can_be_read_but_not_written(depth: int) -> None:
    nest: Any = 1
    for _ in range(depth):
        nest = [nest]
    sample = StoredSample(
        "x",
        0,
        {"audio": field("audio", "wav", WAV), "metainfo": field("metainfo", "json")},
        Metainfo(None, None, None, {"info": {"segments": [{"start": 0, "end": nest}]}}),
    )
    _, told = shown(sample)
    assert json.loads(told.field.detail)["touchfs"]["problem"]


def texts(**stored: Any) -> dict[str, str]:
    """The text files of a segment that is stored so."""
    files = segmented(stored)
    assert list(files)[:2] == ["0000.wav", "0000.json"]
    return {name: files[name].field.detail.decode() for name in list(files)[2:]}


def test_versions_of_a_text() -> None:
    assert texts(start="0", end="1", txt="a", text="b", paraformer="c") == {
        "0000.txt": "a",
        "0000.text.txt": "b",
        "0000.paraformer.txt": "c",
    }
    assert texts(text="b", whisper="") == {"0000.txt": "b", "0000.whisper.txt": ""}
    assert texts(txt={"whisper": "a", "start": "b", "n": 1}, text="c") == {
        "0000.txt": "c",
        "0000.whisper.txt": "a",
        "0000.start.txt": "b",
    }
    assert texts(txts={"w": "a"}, texts={"w": "b", "p": "c"}, p="d", text={"q": "e"}) == {
        "0000.p.txt": "d",
        "0000.q.txt": "e",
        "0000.w.txt": "a",
    }
    assert texts(words=["a"], score=1, others={"x": "y"}, txts="a", none=None) == {"0000.txts.txt": "a"}
    assert texts() == {}


def test_names_of_versions() -> None:
    stored = {"wav": "1", "json": "2", "txt": "3", "a/b": "4", "a%2Fb": "5", "\n": "6", ".": "7", "touchfs": "8"}
    assert texts(**stored) == {
        "0000.wav.txt": "1",
        "0000.json.txt": "2",
        "0000.txt": "3",
        "0000.a%2Fb.txt": "4",
        "0000.a%252Fb.txt": "5",
        "0000.%0A.txt": "6",
        "0000...txt": "7",
        "0000.touchfs.txt": "8",
    }
    assert texts(txts={"txt": "a", "": "b", "\udfff": "c"}) == {"0000.txt.txt": "a"}
    fitting = {"a" * 200: "a", "é" * 100: "b", "/" * 66: "c"}
    assert list(texts(**fitting).values()) == ["a", "b", "c"]
    assert texts(**{"a" * 201: "a", "é" * 101: "b", "/" * 67: "c"}) == {}


@given(
    st.dictionaries(
        st.text(st.characters() | st.sampled_from("%/.\ud800\udced\udcbf\udfff"), max_size=6)
        | st.sampled_from(["txt", "text", "txts", "texts", "start", "end", "wav", "json", ".", "a" * 201]),
        st.text(max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("txt"), st.text(max_size=3) | st.none()),
    )
)
def test_every_version_has_a_file_of_its_own(stored: dict[str, Any]) -> None:
    found = segments_of_json({"info": {"segments": [stored]}})
    assert found is not None
    versions = {name: text for name, text in found.segments[0].texts.items() if not name or segments.is_version(name)}
    files = shown(speech({"info": {"segments": [stored]}}))
    names = [file.extension for file in files]
    assert len(set(names)) == len(names) == 2 + len(versions)
    for name, (version, text) in zip(names[2:], versions.items(), strict=True):
        ending = segments.segment_ending(name.encode())
        assert ending == segments.text_ending(version) and segments.segment_name(0, ending) == name
        assert name.startswith("0000.") and name.endswith(".txt")
        assert len(name.encode()) <= 255
        assert not set(name).intersection("/\0\n")
        assert segmented(stored)[name].field.detail.decode("utf-8") == text.encode("utf-16", "surrogatepass").decode(
            "utf-16", "replace"
        )


def test_ten_thousand_segments_and_more() -> None:
    files = segmented(*({"start": 0, "end": 1} for _ in range(10_002)))
    assert list(files)[-1] == "10001.json"
    assert len(files) == 20_004
