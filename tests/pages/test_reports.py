"""Documents of datasets and samples: they load nothing, and no text of the data is markup in them."""

import base64
import hashlib
import json
import re
import warnings
from html.parser import HTMLParser
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbconvert import HTMLExporter
from nbconvert.preprocessors import ExecutePreprocessor
from tars import write_tar

import touchfs
from touchfs.explore.html import REPORT_BYTES, document, figure, report, section
from touchfs.explore.page import Bars, FileList, Page, Problem, Recording, ShownSegment, ShownSegments, Text, TextTable
from touchfs.format import wav
from touchfs.picture.sketch import Sketch

EVIL = "<script>alert(1)</script>\"'onx=1 </title></style>--> {{7*7}} {%x%} &lt; \u202egpj\u200b\x00\ufffe\ud800"
ELEMENTS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "section",
        "footer",
        "h1",
        "h2",
        "h3",
        "p",
        "div",
        "svg",
    ),
    *(
        "rect",
        "path",
        "figure",
        "picture",
        "source",
        "img",
        "table",
        "thead",
        "tbody",
        "tr",
        "td",
        "th",
        "span",
        "audio",
    ),
    *("pre", "bdi", "text", "b", "h4", "figcaption"),
}
ATTRIBUTES = {
    *(
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "dir",
        "class",
        "viewbox",
        "preserveaspectratio",
        "role",
        "src",
    ),
    *(
        "aria-label",
        "aria-hidden",
        "x",
        "y",
        "width",
        "height",
        "rx",
        "d",
        "media",
        "srcset",
        "alt",
        "controls",
        "preload",
    ),
    *("fill", "fill-opacity", "font-size", "title"),
}


class Parsed(HTMLParser):
    """Elements, attributes and text of a document."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.text = set(), [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def page(text):
    """A page that has a text in every place."""
    sketch = Sketch(20, 8000, 1)
    sketch.add(0, np.sin(np.arange(8000, dtype=np.float32))[:, None], np.arange(21) * 400)
    parts = [
        Recording(text, text, sketch, 8000, 1.0, 1.0, text, b"RIFF"),
        ShownSegments([ShownSegment(0, 0.0, 0.5, text, text)], 3),
        Text(text, text, text),
        Problem(text, text),
        FileList([(text, 5), (text, None)], 2),
        Bars(text, text, [(text, 3, text)]),
        Bars(text, text, [(text, 0, text)]),
        TextTable(text, [text], [[text]]),
    ]
    return Page(text, text, [text], parts)


def check(text, attributes=ATTRIBUTES):
    """Assert that a document has no markup but ours, and loads nothing."""
    found = Parsed(text)
    assert found.elements <= ELEMENTS
    assert {name for name, _ in found.attributes} <= attributes
    for name, value in found.attributes:
        if name in ("src", "srcset"):
            assert value.startswith("data:")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ufeff]", text)
    return found


def test_hostile_texts_are_texts():
    found = check(report(EVIL, [page(EVIL)]))
    assert "script" not in found.elements
    assert (
        found.text.count("<script>alert(1)</script>") > 12
        and "{{7*7}} {%x%} &lt; ⟨U+202E⟩gpj⟨U+200B⟩⟨U+0000⟩" in found.text
    )


@given(st.text(alphabet=st.characters(codec=None), max_size=30))
def test_any_text_in_any_place_comes_back(text):
    found = check(document(text, [section(page(text))]))
    visible = re.sub("⟨U\\+([0-9A-F]{4,6})⟩", lambda match: chr(int(match[1], 16)), found.text)
    for line in text.replace("\r\n", "\n").split("\n"):
        if "⟨" not in line:
            assert line.strip() in visible or line.replace("\r", "\n").strip() in visible


@given(st.text(alphabet=st.characters(codec=None), max_size=30))
def test_an_svg_is_well_formed_with_any_text(text):
    root = ElementTree.fromstring(figure(page(text)))
    assert root.tag.endswith("svg")
    assert {each.tag.rpartition("}")[2] for each in root.iter()} <= {"svg", "title", "rect", "text", "path", "image"}


def test_the_policy_allows_the_style_alone():
    text = report("x", [page("x")])
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    style = re.search("<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'" and rules["style-src"] == f"'sha256-{digest}'"
    assert "script-src" not in rules and " style=" not in text


def test_a_report_says_what_has_no_room():
    loud = page("loud")
    loud.parts[0] = Recording("wav", "", loud.parts[0].sketch, 8000, 1.0, 1.0, "", bytes(100_000))
    text = report("x", [loud] * 8, 170_000)
    assert len(text.encode()) <= 170_000
    assert "have no sound here" in text and "samples are left out: a report has at most 170,000 bytes" in text


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tar of hostile samples."""
    files = {}
    for number in range(12):
        data = np.random.default_rng(number).integers(-9000, 9000, 8000).astype("<i2").tobytes()
        files[f"k<b>{number}.wav"] = wav.build_header(len(data), 8000) + data
        files[f"k<b>{number}.json"] = json.dumps(
            {"segments": [{"start": 0, "end": 1, "text": EVIL}], "<i>": EVIL}
        ).encode()
        files[f"k<b>{number}.txt"] = EVIL.encode(errors="replace")
    return write_tar(tmp_path_factory.mktemp("report") / "d<u>.tar", files)


def test_notebooks_show_samples_and_sets(source):
    samples = touchfs.open(source)
    for shown, most in ((samples[0]._repr_html_(), 2_000_000), (samples._repr_html_(), 256_000)):
        assert len(shown.encode()) <= most
        found = check(shown, ATTRIBUTES | {"style"})
        assert "k<b>0" in found.text and "<script>" in found.text
    assert "audio" in Parsed(samples[0]._repr_html_()).elements
    assert samples[:3]._repr_html_() is not None
    assert REPORT_BYTES == 5_000_000


@pytest.mark.variant
def test_nbconvert_keeps_what_notebooks_show(source):
    code = f"import touchfs\nsamples = touchfs.open({str(source)!r})\nsamples[0]", "samples"
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, code)])
    with warnings.catch_warnings(action="ignore"):  # of Jupyter
        ExecutePreprocessor(timeout=120, kernel_name="python3").preprocess(notebook)
        page, _ = HTMLExporter().from_notebook_node(notebook)
    shown = [cell.outputs[-1].data["text/html"] for cell in notebook.cells]
    assert shown[0] == touchfs.open(source)[0]._repr_html_()
    assert "<audio" in shown[0] and "First samples" in shown[1]
    kept = Parsed(page)
    for each in map(Parsed, shown):
        assert each.text in kept.text
        assert {(name, value or "") for name, value in each.attributes} <= {*kept.attributes}
