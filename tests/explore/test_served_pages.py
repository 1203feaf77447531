"""Pages of a server as documents: any text of the data, in any place, is that text and nothing else."""

from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import example, given
from hypothesis import strategies as st

from touchfs.explore.html import visible
from touchfs.explore.linked import ErrorList, LinkedSample, OverviewPage, SampleList, SamplePage, json_of
from touchfs.explore.page import (
    Bars,
    HistogramCard,
    LinkedFiles,
    LinkedImage,
    LinkedRecording,
    LinkedSegment,
    LinkedSegments,
    LinkedVideo,
    Page,
    Problem,
    ShownSegment,
    Text,
    TextTable,
)
from touchfs.explore.served import served

PLAIN = "plain"
EVIL = "<script>alert(1)</script>\"'onx=1 </title></style>--> {{7*7}} &lt; \u202egpj\u200b\0\udcff <!-- ]]>"


class Outline(HTMLParser):
    """The elements of a page with the names of their attributes, and all of its texts and attributes. Classes depend on
    extensions and columns.
    """

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, [name for name, _ in attributes if name != "class"]))
        self.texts += [value for _, value in attributes if value]

    def handle_data(self, data):
        self.texts.append(data)

    def handle_comment(self, data):
        self.elements.append(("comment", [data]))


def pages(text):
    """Every page, with a text in each place where the data may have one."""
    segment = ShownSegment(0, 0.0, 0.5, text, text)
    parts = (
        LinkedRecording(text, text, 1.0, 1.0, text, "u", "s", "w?w=1", "g?w=1", [("1 kHz", 50.0)], 2),
        LinkedSegments([LinkedSegment(segment, "s", [(text, "u")])], 9, "u", [segment], [1], "u", "u"),
        LinkedImage(text, text, "u", "s"),
        LinkedVideo(text, text, "u"),
        Text(text, text, text),
        Problem(text, text),
        TextTable(text, (text,), [(text,)]),
        LinkedFiles([(text, None, "u"), ("a", 1, "u")], 2),
        HistogramCard(text, text, [1, 0], (text, text), [text, text], "samples"),
        Bars(text, text, [(text, 1, text)], [text]),
    )
    page = Page(text, text, [text], parts)
    row = LinkedSample(0, text, text, text, 1, "u", "p", "image")
    listed = [
        SampleList(
            *("samples", "", "random", 1, 0, 99, 1, [row], "u", "u", "", None, text),
            *([f"merged/{text}"], ["size"], [text]),
        )
    ]
    given = replace(listed[0], ids=text, but=text, also=text, given=[text], is_counting=True, where=text)
    given = replace(given, compared=[(text, 1, "u")])
    wrong = SampleList(text, text, "stored", 0, 0, 1, 0, [], "", "", text, min(1, len(text)))
    return (
        OverviewPage(page, listed[0], True, 2),
        listed[0],
        replace(given, is_unfinished=True, searched=1),
        wrong,
        SamplePage(page, "u", "u"),
        ErrorList([(text, text, "u")], 0, 1),
    )


PLAIN_ELEMENTS = [Outline(served(page, PLAIN, "./", "n")).elements for page in pages(PLAIN)]


@given(st.text())
@example(EVIL)
@example("")
def test_a_text_is_a_text_wherever_it_is(text):
    for page, elements in zip(pages(text), PLAIN_ELEMENTS, strict=True):
        found = Outline(served(page, text, "./", "n"))
        if text:
            assert found.elements == elements
            shown = visible(text).replace("\r", "\n").strip()
            assert shown in "".join(found.texts).replace("\r", "\n")
        assert not any(name.startswith("on") or name == "style" for _, names in found.elements for name in names)
        assert json_of(page).isascii()
