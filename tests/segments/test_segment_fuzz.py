"""Any bytes, and files of many lines: a FormatError on one line, or segments, in little memory."""

import tracemalloc
from collections.abc import Callable, Iterator
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_segment_files import FILES

from touchfs.core.errors import FormatError
from touchfs.segments import sidecar
from touchfs.segments.formats.ctm import parse_ctm
from touchfs.segments.formats.lines import lines
from touchfs.segments.segment import SEGMENTS_MAX
from touchfs.segments.sidecar import FILE_RULES, parse

SNIPPETS = [
    "1\n",
    "\n",
    "\r",
    "-->",
    "00:01.5",
    " ",
    "\t",
    '"',
    "<",
    ">",
    "!",
    "WEBVTT",
    "SPEAKER",
    "1.5",
    "é",
    "\0",
    ";;",
]


def parsed(extension: str, data: bytes) -> None:
    try:
        segments = parse(extension, [data], "a")
    except FormatError as error:
        assert "\n" not in str(error)
        assert len(str(error)) < 300
        return
    for segment in segments.segments if segments else ():
        first, count, problem = segment.span(16000, 32000)
        assert 0 <= first <= first + count <= 32000
        assert count or problem


@given(
    st.sampled_from([*FILE_RULES]),
    st.binary(max_size=60) | st.lists(st.sampled_from(SNIPPETS)).map("".join).map(str.encode),
)
def test_any_bytes(extension: str, data: bytes) -> None:
    parsed(extension, data)


@given(st.sampled_from([*FILES]), st.data())
def test_damaged_files(extension: str, data: st.DataObject) -> None:
    stored = bytearray(FILES[extension][0].encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stored) - 1))
        if data.draw(st.booleans()):
            stored[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            del stored[at : at + data.draw(st.integers(1, 40))]
            stored = stored or bytearray(b"x")
    parsed(extension, bytes(stored))


WORD = st.text(st.sampled_from("abé你!<&\"'"), min_size=1, max_size=5)
SPANS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 10**6), WORD), min_size=1, max_size=5)


def clock(milliseconds: int) -> str:
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}.{rest % 1000:03d}"


def textgrid(spans: list[tuple[int, int, str]]) -> str:
    rows = "".join(f'{a / 1000}\n{(a + n) / 1000}\n"{word.replace(chr(34), chr(34) * 2)}"\n' for a, n, word in spans)
    return f'"ooTextFile"\n"TextGrid"\n0\n99999\n<exists>\n1\n"IntervalTier"\n"w"\n0\n99999\n{len(spans)}\n{rows}'


def eaf(spans: list[tuple[int, int, str]]) -> str:
    slots = "".join(
        f'<TIME_SLOT TIME_SLOT_ID="{i}{edge}" TIME_VALUE="{time}"/>'
        for i, (a, n, _) in enumerate(spans)
        for edge, time in (("a", a), ("b", a + n))
    )
    rows = "".join(
        f'<ALIGNABLE_ANNOTATION ANNOTATION_ID="{i}" TIME_SLOT_REF1="{i}a" TIME_SLOT_REF2="{i}b">'
        f"<ANNOTATION_VALUE>{escape(word)}</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION>"
        for i, (_, _, word) in enumerate(spans)
    )
    return f'<ANNOTATION_DOCUMENT><TIME_ORDER>{slots}</TIME_ORDER><TIER TIER_ID="w">{rows}</TIER></ANNOTATION_DOCUMENT>'


def numbered(line: Callable[[int, int, int, str], str]) -> Callable[[list[tuple[int, int, str]]], str]:
    return lambda spans: "".join(line(i, *span) for i, span in enumerate(spans))


BUILDERS = {
    "srt": numbered(lambda i, a, n, word: f"{i}\n{clock(a)} --> {clock(a + n)}\n{word}\n\n"),
    "vtt": lambda spans: (
        "WEBVTT\n\n" + "".join(f"{clock(a)} --> {clock(a + n)}\n{escape(word)}\n\n" for a, n, word in spans)
    ),
    "ctm": numbered(lambda _, a, n, word: f"r 1 {a / 1000} {n / 1000} {word}\n"),
    "stm": numbered(lambda _, a, n, word: f"r 1 s {a / 1000} {(a + n) / 1000} <o> {word}\n"),
    "txt": numbered(lambda _, a, n, word: f"{a / 1000:.6f}\t{(a + n) / 1000:.6f}\t{word}\n"),
    "textgrid": textgrid,
    "eaf": eaf,
}


@given(st.sampled_from([*BUILDERS]), SPANS)
def test_what_is_written_is_read(extension: str, spans: list[tuple[int, int, str]]) -> None:
    if extension == "textgrid":  # in order of their starts
        spans = sorted(spans, key=lambda span: span[0])
    segments = parse(extension, [BUILDERS[extension](spans).encode()])
    assert segments is not None
    found = [(*segment.span(1000, 2 * 10**7)[:2], segment.text) for segment in segments.segments]
    assert found == spans


@given(
    st.text(st.sampled_from("ab\n\r"), max_size=12),
    st.integers(1, 5),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_lines_are_those_of_universal_newlines(text: str, block: int, encoding: str) -> None:
    data = text.encode(encoding)
    found = list(lines(data[at : at + block] for at in range(0, len(data), block)))
    assert [line for _, line in found] == text.splitlines()
    assert [number for number, _ in found] == list(range(1, len(found) + 1))


def blocks(line: bytes, count: int) -> Iterator[bytes]:
    many = line * 1000
    return (many for _ in range(count // 1000))


def test_a_long_file_takes_the_memory_of_a_block() -> None:
    tracemalloc.start()
    count = sum(1 for _ in parse_ctm(blocks(b"a 1 0.5 0.25 word 0.9\n", 5000)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 5000
    assert peak < 1_000_000


def test_other_recordings_of_a_long_file_take_no_memory() -> None:
    def stored() -> Iterator[bytes]:
        yield b"a 1 0 1 first\n"
        yield from blocks(b"b 1 0.5 0.25 word 0.9\n", 5000)

    tracemalloc.start()
    segments = parse("ctm", stored(), "a")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert segments is not None
    assert [segment.text for segment in segments.segments] == ["first"]
    assert peak < 1_000_000


@pytest.mark.parametrize(
    ("extension", "line", "most"),
    [
        ("srt", b"00:00:01,000 --> 00:00:02,000\n", 5000),
        ("ctm", b"b 1 0.5 0.25 word\n", 5000),
        ("txt", b"1.0\t2.0\tx\n", 5000),
        pytest.param("txt", b"1.0\t2.0\tx\n", SEGMENTS_MAX, marks=pytest.mark.variant),
    ],
)
def test_too_many_segments(extension: str, line: bytes, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar, "SEGMENTS_MAX", most)
    with pytest.raises(FormatError, match=f"{extension} has more than {most:,} segments"):
        parse(extension, blocks(line, most + 2000), "a")
