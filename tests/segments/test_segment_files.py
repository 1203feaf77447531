"""Files with segments beside a recording, as their tools write them."""

from typing import Any

import pytest

from touchfs.core.errors import FormatError
from touchfs.segments import sidecar
from touchfs.segments.segment import Segment
from touchfs.segments.sidecar import FILE_RULES, parse

RATE, LENGTH = 1000, 100_000

SRT = """1
00:00:01,500 --> 00:00:03,000
<i>Good</i> morning.

2
0:00:03.5 --> 00:00:04,000 X1:1 X2:2
{\\an8}This is

a talk.
00:00:05,000 --> 01:00:06,000
in 2024
3
00:00:07,000 --> 00:00:08,000
"""
VTT = """WEBVTT - a title
Kind: captions

STYLE
::cue { color: red }

NOTE
This is a note, and what comes is a cue.
00:09.000 --> 00:10.000

greeting
00:01.500 --> 00:03.000 align:start
<v.loud Ann>Good <c.x>mor</c>ning &amp; hello.
- Ann &lt;3

01:00:00.000 --> 01:00:01.000
<v Ann>Hi.</v> <v Bob>Ho.</v>
"""
CTM = """;; comment
monday 1 1.50 0.25 good 0.98
monday 1 * * <ALT_BEGIN>
monday A 1.75 0.5 morning NA
"""
STM = """;; comment
monday 1 Ann 1.5 3.0 <o,f0,female> good morning
monday 1 inter_segment_gap 3.0 4.0 <o,f0,> ignore_time_segment_in_scoring
monday 1 Bob 4.0 5.0 this  is
monday 1 Bob 5.0 6.0
"""
RTTM = """SPKR-INFO monday 1 <NA> <NA> <NA> unknown Ann <NA> <NA>
SPEAKER monday 1 1.50 1.50 <NA> <NA> Ann <NA> <NA>
LEXEME monday 1 1.50 0.25 good lex Ann 0.9
SPEAKER monday 1 4.00 1e0 <NA> <NA> <NA> <NA>
"""
AUDACITY = "1.500000\t3.000000\tGood morning.\n\\\t100.0\t200.0\n4,000000\t4,000000\n"
LONG = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = 5
tiers? <exists>
size = 3
item []:
    item [1]:
        class = "IntervalTier"
        name = "words"
        xmin = 0
        xmax = 5
        intervals: size = 3
        intervals [1]:
            xmin = 0
            xmax = 1.5
            text = ""
        intervals [2]:
            xmin = 1.5
            xmax = 3
            text = "say ""good""
morning!" ! a comment with a " in it
        intervals [3]:
            xmin = 3
            xmax = 5
            text = "you"
    item [2]:
        class = "IntervalTier"
        name = "phones"
        xmin = 0
        xmax = 5
        intervals: size = 2
        intervals [1]:
            xmin = 1.5
            xmax = 2
            text = "g"
        intervals [2]:
            xmin = 3
            xmax = 5.0000001
            text = "u"
    item [3]:
        class = "TextTier"
        name = "bells"
        xmin = 0
        xmax = 5
        points: size = 1
        points [1]:
            number = 2.5
            mark = "ding"
"""
SHORT = """File type = "ooTextFile"
Object class = "TextGrid"

0
5
<exists>
2
"IntervalTier"
"Ann"
0
5
1
1.5
3
"good"
"IntervalTier"
"Bob"
0
5
2
0
1
"hello"
2.5
4
"morning"
"""
EAF = """<?xml version="1.0" encoding="UTF-8"?>
<ANNOTATION_DOCUMENT FORMAT="3.0">
  <HEADER TIME_UNITS="milliseconds"/>
  <TIME_ORDER>
    <TIME_SLOT TIME_SLOT_ID="ts1" TIME_VALUE="1500"/><TIME_SLOT TIME_SLOT_ID="ts2" TIME_VALUE="3000"/>
    <TIME_SLOT TIME_SLOT_ID="ts3"/>
  </TIME_ORDER>
  <TIER TIER_ID="A" PARTICIPANT="Ann" LINGUISTIC_TYPE_REF="t">
    <ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" TIME_SLOT_REF1="ts1" TIME_SLOT_REF2="ts2">
      <ANNOTATION_VALUE>Good &amp; morning.</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
    <ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a2" TIME_SLOT_REF1="ts2" TIME_SLOT_REF2="ts3">
      <ANNOTATION_VALUE>late</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
  </TIER>
  <TIER TIER_ID="words" PARENT_REF="A" LINGUISTIC_TYPE_REF="w">
    <ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a3" TIME_SLOT_REF1="ts1" TIME_SLOT_REF2="ts2">
      <ANNOTATION_VALUE>Good</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
  </TIER>
  <TIER TIER_ID="German" PARENT_REF="A" LINGUISTIC_TYPE_REF="tr">
    <ANNOTATION><REF_ANNOTATION ANNOTATION_ID="a4" ANNOTATION_REF="a1">
      <ANNOTATION_VALUE>Guten Morgen.</ANNOTATION_VALUE></REF_ANNOTATION></ANNOTATION>
  </TIER>
</ANNOTATION_DOCUMENT>
"""


def found(extension: str, data: str | bytes, key: str = "") -> list[Segment]:
    stored = data.encode() if isinstance(data, str) else data
    segments = parse(extension, [stored], key)
    assert segments is not None
    assert segments.rule == extension.lower()
    return list(segments.segments)


def shown(segments: list[Segment]) -> list[tuple[Any, ...]]:
    return [(*segment.span(RATE, LENGTH)[:2], segment.text, segment.speaker) for segment in segments]


def tiers(count: int) -> str:
    """A TextGrid of tiers, none of which divides another."""
    each = "".join(f'"IntervalTier" "{tier}" 0 999 1 {tier} {tier + 1} "x"\n' for tier in range(count))
    return f'"ooTextFile" "TextGrid" 0 999 <exists> {count} {each}'


FILES: dict[str, tuple[str, list[Any]]] = {
    "srt": (
        SRT,
        [
            (1500, 1500, "Good morning.", None),
            (3500, 500, "This is\na talk.", None),
            (5000, 95000, "in 2024", None),
            (7000, 1000, "", None),
        ],
    ),
    "vtt": (
        VTT,
        [(9000, 1000, "", None), (1500, 1500, "Good morning & hello.\n- Ann <3", "Ann"), (100_000, 0, "Hi. Ho.", None)],
    ),
    "ctm": (CTM, [(1500, 250, "good", None), (1750, 500, "morning", None)]),
    "stm": (
        STM,
        [
            (1500, 1500, "good morning", "Ann"),
            (3000, 1000, None, "inter_segment_gap"),
            (4000, 1000, "this  is", "Bob"),
            (5000, 1000, "", "Bob"),
        ],
    ),
    "rttm": (RTTM, [(1500, 1500, None, "Ann"), (4000, 1000, None, None)]),
    "txt": (AUDACITY, [(1500, 1500, "Good morning.", None), (4000, 0, "", None)]),
    "TextGrid": (LONG, [(1500, 1500, 'say "good"\nmorning!', None), (3000, 2000, "you", None)]),
    "textgrid": (SHORT, [(0, 1000, "hello", "Bob"), (1500, 1500, "good", "Ann"), (2500, 1500, "morning", "Bob")]),
    "eaf": (EAF, [(1500, 1500, "Good & morning.", "Ann"), (0, 0, "late", "Ann")]),
}


@pytest.mark.parametrize("extension", FILES)
def test_what_tools_write(extension: str) -> None:
    data, expected = FILES[extension]
    assert shown(found(extension, data)) == expected


@pytest.mark.parametrize("extension", FILES)
@pytest.mark.parametrize(
    "store",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: text.encode("utf-8-sig"),
        lambda text: text.replace('encoding="UTF-8"', "").encode("utf-16"),
        lambda text: b"\xfe\xff" + text.replace('encoding="UTF-8"', "").encode("utf-16-be"),
    ],
)
@pytest.mark.parametrize("block", [1, 7, 2**20])
def test_encodings_line_ends_and_blocks(extension: str, store: Any, block: int) -> None:
    text, expected = FILES[extension]
    data = store(text)
    segments = parse(extension, [memoryview(data)[at : at + block] for at in range(0, len(data), block)])
    assert segments is not None
    assert shown(list(segments.segments)) == expected


def test_details_are_kept() -> None:
    assert [cue.fields.get("id") for cue in found("vtt", VTT)] == [None, "greeting", None]
    good = found("ctm", CTM)[0]
    assert good.fields == {
        "start": 1.5,
        "duration": 0.25,
        "text": "good",
        "confidence": 0.98,
        "recording_id": "monday",
        "channel": "1",
    }
    assert found("stm", STM)[0].fields["labels"] == ["o", "f0", "female"]
    assert found("stm", STM)[0].texts == {"": "good morning"}
    first, late = found("eaf", EAF)
    assert first.texts == {"": "Good & morning.", "German": "Guten Morgen."}
    assert "is not a time" in (late.span(RATE, LENGTH)[2] or "")


def test_a_file_that_names_one_recording_is_about_the_one_beside_it() -> None:
    assert len(found("ctm", CTM, "talks/tuesday")) == 2


def test_of_a_file_that_names_several_the_lines_of_the_key_count() -> None:
    lines = "".join(f"{name} 1 {start} 1 {name}\n" for start, name in enumerate(["b", "a", "talks/a", "a", "b"]))
    assert [segment.text for segment in found("ctm", lines, "a")] == ["a", "a"]
    assert [segment.text for segment in found("ctm", lines, "talks/a")] == ["a", "talks/a", "a"]
    assert [segment.text for segment in found("ctm", lines, "b")] == ["b", "b"]
    assert parse("ctm", [lines.encode()], "c") is None


def test_tiers_that_overlap_are_of_several_speakers() -> None:
    assert [segment.speaker for segment in found("TextGrid", tiers(32))] == [str(tier) for tier in range(32)]


@pytest.mark.parametrize(
    ("text", "shown_text"),
    [
        ("<v" + " " * 500_000, "<v"),
        ("<v " * 300_000, "<v " * 299_999 + "<v"),
        ("&#" + "9" * 5000 + ";", "&#" + "9" * 5000 + ";"),
        ("&#9999999999; &#xD800; &nosuch; &amp;lt;", "\ufffd \ufffd &nosuch; &lt;"),
        ("<v><v >x</v>", "x"),
    ],
)
def test_markup_that_takes_no_time(text: str, shown_text: str) -> None:
    (cue,) = found("vtt", "WEBVTT\n\n00:01.500 --> 00:03.000\n" + text)
    assert cue.text == shown_text
    assert cue.speaker is None


@pytest.mark.parametrize("most", [2_000_000, pytest.param(sidecar.CHARACTERS_MAX, marks=pytest.mark.variant)])
def test_texts_that_are_too_long_together(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "CHARACTERS_MAX", most)
    cue = b"00:00:01,500 --> 00:00:03,000\n" + b"x" * 1_000_000 + b"\n\n"
    with pytest.raises(FormatError, match=f"more than 262,144 segments or {most:,} characters"):
        parse("srt", (cue for _ in range(100)))


@pytest.mark.parametrize("text", ["", "\n\n", "Good morning.", "1.5\tGood\n", "1 2 3\n", "1\t2\tfoo\n", "1.0 \t2.0\tx"])
def test_a_text_without_labels_is_a_transcript(text: str) -> None:
    assert parse("txt", [text.encode()]) is None


@pytest.mark.parametrize("extension", [*FILE_RULES, "wav", "", "json"])
def test_empty_files_and_other_extensions(extension: str) -> None:
    if extension in ("vtt", "textgrid", "eaf"):
        with pytest.raises(FormatError):
            parse(extension, [])
    else:
        assert parse(extension, []) is None


@pytest.mark.parametrize(
    ("extension", "data", "words"),
    [
        ("srt", "Good morning.\n", "line 1: 'Good morning.' is not a subtitle"),
        ("srt", "1\n2\n00:00:01,000 --> 00:00:02,000\n", "line 2: '2' is not a subtitle"),
        ("srt", "1\n00:00:01,500 -> 00:00:03,000\n", "line 2: .* is not a subtitle"),
        ("srt", "1\n00:00:01,500 --> now\n", "line 2: .* is not a time"),
        ("srt", "1\n00:00:01,500 --> 00:00:03,000\n" + "x" * 2000 + "\n-->", "line 4: '-->' is not a time"),
        ("srt", b"1\n00:00:01,500 --> 00:00:03,000\ncaf\xe9\n", "line 3: is not UTF-8: convert"),
        ("srt", b"\xff\xfe1", "is not UTF-16"),
        ("srt", "x" * 2**21, "line 1: has over 1,048,576 characters"),
        (
            "srt",
            "1\n00:00:01,500 --> 00:00:03,000\n" + ("x" * 999 + "\n") * 2000,
            "line 1051: the text of a segment has",
        ),
        ("vtt", "WEBVTTX\n", "line 1: is not WEBVTT"),
        ("vtt", "1\n00:01.500 --> 00:03.000\n", "line 1: is not WEBVTT"),
        ("vtt", "WEBVTT\n\n00:01.500 --> x\n", "line 3: .* is not a time"),
        ("ctm", "a 1 0 1\n", "line 1: has 4 fields"),
        ("ctm", "\na 1 0 nan word\n", "line 2: 'nan' is not a time"),
        ("ctm", "a 1 0 1_0 word\n", "line 1: '1_0' is not a time"),
        ("ctm", "a 1 0 1e400 word\n", "line 1: '1e400' is not a time"),
        ("ctm", f"a 1 0 {'9' * 100_000} word\n", "line 1: '9+'… is not a time"),
        ("stm", "a 1 Ann 0\n", "line 1: has 4 fields"),
        ("rttm", "SPEAKER a 1 0 1 <NA> <NA>\n", "line 1: has 7 fields"),
        ("rttm", "TURN a 1 0 1 <NA> <NA> Ann\n", "line 1: 'TURN' is no type of RTTM"),
        ("txt", "1.0\t2.0\tx\nnext\n", "line 2: 'next' is not a label"),
        ("TextGrid", "ooBinaryFile\x08TextGrid", "ends where a string is expected"),
        ("TextGrid", '"Praat chronological TextGrid text file"', "is not a TextGrid in one of Praat's text formats"),
        ("TextGrid", '"ooTextFile" "Sound"', "the object is a 'Sound'"),
        ("TextGrid", LONG[:-200], "ends "),
        ("TextGrid", LONG.replace("size = 3\nitem", "size = 999999999\nitem"), "ends where a string is expected"),
        ("TextGrid", LONG.replace("size = 3\nitem", "size = 9999999999\nitem"), "line 7: .* is not a number of tiers"),
        ("TextGrid", LONG.replace("size = 3\nitem", "size = 1.5\nitem"), "line 7: .* is not a number of tiers"),
        ("TextGrid", LONG.replace("IntervalTier", "Tier", 1), "line 10: 'Tier' is no kind of tier"),
        ("TextGrid", LONG.replace("xmin = 1.5\n", "", 1), "line 2[0-9]: .* stands where a number is expected"),
        ("TextGrid", LONG.replace("xmin = 1.5\n", "xmin = 1-5\n", 1), "line 20: '1-5' is not a time"),
        ("TextGrid", '"ooTextFile" "' + "x\n" * 600_000, "line 524282: a string has over"),
        ("TextGrid", '"ooTextFile', "ends inside a string"),
        ("TextGrid", tiers(33), "has more than 32 tiers of segments"),
        ("eaf", "<ANNOTATION_DOCUMENT>", "line 1: is not XML: no element found"),
        ("eaf", "<a/>", "no ANNOTATION_DOCUMENT"),
        ("eaf", '<!DOCTYPE a [<!ENTITY x "y">]><ANNOTATION_DOCUMENT>&x;</ANNOTATION_DOCUMENT>', "declares a document"),
        ("eaf", '<!DOCTYPE a SYSTEM "file:///etc/passwd"><ANNOTATION_DOCUMENT/>', "declares a document type"),
        ("eaf", '<?xml version="1.0" encoding="x-none"?><a/>', "encoding"),
        ("eaf", '<?xml version="1.0" encoding="gb2312"?><a/>', "encoding"),
        ("eaf", "<ANNOTATION_DOCUMENT>" + "<a>" * 101, "is XML with elements more than 100 deep"),
        ("eaf", "<ANNOTATION_VALUE>" + "x" * 2**21, "the text of a segment has over"),
    ],
)
def test_refusals(extension: str, data: str | bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        found(extension, data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("extension", ["TextGrid", "eaf"])
def test_a_file_that_is_too_large(extension: str) -> None:
    test_refusals(extension, b" " * (2**26 + 1), "has over 67,108,864 bytes")
