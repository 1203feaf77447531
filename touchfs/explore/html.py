"""Pages as HTML and SVG: one file, without a script, that loads nothing.

Templates escape whatever they are given, and `visible` marks what has no shape of its own: so a name can neither be
markup nor turn the text beside it. The policy of a document allows its own style sheet and data of its own, so even a
mistake here could not run.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from touchfs.core.control_characters import CONTROL
from touchfs.core.errors import MissingExtraError, UsageError
from touchfs.core.extras import install_hint
from touchfs.explore.files import PictureSize
from touchfs.explore.lanes import lanes_of
from touchfs.explore.linked import list_url
from touchfs.explore.page import (
    Bars,
    HistogramCard,
    Line,
    LinkedImage,
    LinkedRecording,
    LinkedSegments,
    Map,
    Page,
    Part,
    Picture,
    Recording,
    ShownSegment,
    ShownSegments,
    Text,
    Thumbnails,
)
from touchfs.picture.palette import NIGHT, PAPER
from touchfs.picture.png import colours_png, levels_png
from touchfs.picture.spectrogram import ROWS, row_of
from touchfs.picture.waveform import wave_path

if TYPE_CHECKING:
    from jinja2 import Environment

REPORT_BYTES = 5_000_000
PLAYED_SECONDS = 10
SIZE = PictureSize(800, 720, 480, 240, PLAYED_SECONDS)
# Of notebooks
NOTEBOOK_SIZE = PictureSize(800, 480, 320, 160, 30)
SAMPLE_BYTES, SET_BYTES = 2_000_000, 256_000
TEMPLATES = os.path.join(os.path.dirname(__file__), "templates")
# What has no shape, or changes how its neighbours read: but for line ends, tabs, and the joiners that scripts need.
_SHAPELESS = re.compile(
    f"(?![\n\t])[{CONTROL}\xad\u061c\u200b\u200e\u200f\u2060-\u2064\ufeff\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
_SILENT = 0.001
# Characters of a key that are shown
_TITLE = 280
_WAVE_HEIGHT = 100
_LANES = 6
# Of a figure of SVG
_WIDTH, _LEFT, _TOP, _WAVE, _SPECTROGRAM, _LANE = 968, 16, 76, 88, 240, 24
_GUTTER, _RULER = 48, 20
_MARKS = (500, 1000, 2000, 4000, 8000)
_STEPS, _TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300, 600, 1800), 10
_ZOOMS = {
    "in": "+ in",
    "out": "− out",
    "earlier": "← earlier",
    "later": "later →",
    "whole": "whole",
    "first": "begin",
}
# Smaller images are enlarged, as far as their sides stay below this.
_SMALL = 160


def visible(text: str) -> str:
    """A text whose characters without a shape of their own are written as `⟨U+202E⟩`."""
    return _SHAPELESS.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text.replace("\r\n", "\n"))


def typed(where: str) -> str:
    """A filter as a form has it: what has no shape is an escape of its strings, so the same filter is sent again."""
    return _SHAPELESS.sub(lambda match: json.dumps(match[0])[1:-1], where)


@cache
def environment() -> Environment:
    """The templates. Raises MissingExtraError without Jinja2."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError(f"HTML and SVG need Jinja2: {install_hint('html')}") from error

    def shown(value: Any) -> Any:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        auto_reload=False,
    )
    found.filters["typed"] = typed
    found.filters["short"] = lambda text: text if len(text) <= _TITLE else f"{text[:_TITLE]} …"
    return found


def markup(text: str) -> str:
    """Markup of ours, that templates take as it is."""
    from markupsafe import Markup

    return Markup(text)


def fragment(page: Page, most_bytes: int) -> str | None:
    """A page as a notebook shows it, in the colours of that; None if it has more bytes, or without Jinja2."""
    try:
        found = section(page, 3, has_style=False)
        if len(found.encode()) > most_bytes:
            found = section(_without_sound(page), 3, has_style=False)
    except MissingExtraError:
        return None
    return found if len(found.encode()) <= most_bytes else None


def section(page: Page, level: int = 1, root: str = "", *, has_style: bool = True) -> str:
    """A page as a part of a document, with our style sheet or without; with links, if that is at a server with its
    `root` at this relative URL. Raises MissingExtraError without Jinja2.
    """
    cards = [part for part in page.parts if isinstance(part, HistogramCard | Bars)]
    others = [part for part in page.parts if not isinstance(part, HistogramCard | Bars)]
    following = [*others[1:], None]
    wide = _are_wide(others)
    parts = [
        (type(part).__name__, part, _drawn(part, after), is_wide)
        for part, after, is_wide in zip(others, following, wide, strict=False)
    ]
    return (
        environment()
        .get_template("section.html")
        .render(
            page=page,
            level=level,
            facts=[_figures(fact) for fact in page.facts],
            cards=cards,
            parts=parts,
            height=_height,
            width=_width,
            has_style=has_style,
            root=root,
            list_url=list_url,
            zooms=_ZOOMS,
            clock=clock,
        )
    )


def document(title: str, sections: Iterable[str], left_out: str = "") -> str:
    """A document of sections."""
    style = style_sheet()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        environment()
        .get_template("page.html")
        .render(
            title=title, sections=markup("".join(sections)), style=markup(style), style_hash=digest, left_out=left_out
        )
    )


def style_sheet() -> str:
    """The style sheet of all pages."""
    with open(os.path.join(TEMPLATES, "page.css"), encoding="utf-8") as file:
        return file.read()


def report(title: str, pages: Iterable[Page], most_bytes: int = REPORT_BYTES) -> str:
    """A document of pages, of at most so many bytes. It says which sound and which pages have no room in it."""
    room = most_bytes - len(document(title, (), "x" * 100).encode())
    sections, mute, left = list[str](), 0, 0
    for page in pages:
        for each in (page, _without_sound(page)):
            text = section(each, 2 if sections else 1)
            if len(text.encode()) <= room:
                room -= len(text.encode())
                sections.append(text)
                mute += each is not page and each != page
                break
        else:
            left += 1
    missing = [f"{mute} samples have no sound here"] * bool(mute) + [f"{left} samples are left out"] * bool(left)
    return document(
        title, sections, f"{', '.join(missing)}: a report has at most {most_bytes:,} bytes" if missing else ""
    )


def _without_sound(page: Page) -> Page:
    return replace(page, parts=[replace(part, wav=b"") if isinstance(part, Recording) else part for part in page.parts])


def _are_wide(parts: Sequence[Part]) -> list[bool]:
    """Which parts are as wide as the page: all but images and texts beside each other."""
    narrow = [isinstance(part, Picture | Text | LinkedImage) for part in parts]
    beside = zip([False, *narrow], narrow, [*narrow[1:], False], strict=False)
    return [not (this and (before or after)) for before, this, after in beside]


def _figures(fact: str) -> list[tuple[str, str]]:
    """A line of facts as numbers with what they count: `10 samples · 14.2 s`. A fact that has no number is one word."""
    parts = [each.partition(" ") for each in fact.split(" · ")]
    if len(parts) > 1 and all(number[:1].isdigit() for number, _, _ in parts):
        return [(number, unit) for number, _, unit in parts]
    return [("", fact)]


def _height(count: int, counts: Sequence[int]) -> float:
    return round(max(100 * count / max(counts), 1 if count else 0), 2)


def _width(count: int, part: Bars) -> float:
    return round(max(100 * count / (max(each for _, each, _ in part.values) or 1), 1), 2)


def _drawn(part: Part, following: Part | None) -> dict[str, Any]:
    """The pictures of a part, as URLs of data and paths."""
    match part:
        case Recording():
            levels = part.sketch.levels()
            listed = following.listed if isinstance(following, ShownSegments) else ()
            listed = [each for each in listed if each.start < part.drawn]
            return {
                "waves": waves(part),
                "paper": _url("image/png", levels_png(levels, PAPER)),
                "night": _url("image/png", levels_png(levels, NIGHT)),
                "shades": [_span(each.start, each.end, part.drawn, part.sketch.columns) for each in listed],
                "lanes": [
                    [(*_span(each.start, each.end, part.drawn, 100), _spoken(each)) for each in lane]
                    for lane in lanes_of(listed)[:_LANES]
                ],
                "ticks": _ticks(part.drawn),
                "marks": marks(part.rate),
                "sound": _url("audio/wav", part.wav) if part.wav else "",
            }
        case LinkedRecording():
            linked = following if isinstance(following, LinkedSegments) else LinkedSegments((), 0, "")
            begin, end = part.start, part.start + part.drawn
            digits = 0 if part.seconds >= 600 else 2
            lanes = lanes_of([each for each in linked.lanes if each.start < end and each.end > begin])[:_LANES]
            return {
                "density": _density_path(linked.density) if linked.density else "",
                "columns": len(linked.density),
                "words": f"segments: up to {max(linked.density, default=0):,} at a time",
                "lanes": [
                    [(*_span(each.start - begin, each.end - begin, part.drawn, 100), each) for each in lane]
                    for lane in lanes
                ],
                "ticks": _ticks(part.drawn, begin),
                "shown": _span(begin, end, part.seconds, 100),
                "parts": [
                    (*_span(first, last, part.seconds, 100), f"{clock(first, digits)} – {clock(last, digits)}", url)
                    for first, last, url in part.parts
                ],
            }
        case Picture():
            source, width, height, is_enlarged = _enlarged(part.pixels)
            return {"source": source, "width": width, "height": height, "is_enlarged": is_enlarged}
        case Thumbnails():
            return {"images": [(name, *_enlarged(pixels)) for name, pixels in part.images]}
        case Map():
            return {
                "paper": _url("image/png", levels_png(part.levels, PAPER)),
                "night": _url("image/png", levels_png(part.levels, NIGHT)),
            }
        case Line():
            return {"path": wave_path(part.low, part.high, _WAVE_HEIGHT)}
    return {}


def waves(part: Recording) -> list[str]:
    """The path of each channel: a unit wide for each column, and 100 high."""
    scale = np.float32(1 / max(part.sketch.peak, _SILENT))
    return [
        wave_path(low * scale, high * scale, _WAVE_HEIGHT)
        for low, high in zip(part.sketch.low, part.sketch.high, strict=True)
    ]


def _spoken(segment: ShownSegment) -> str:
    return f"{segment.speaker}: {segment.text}" if segment.speaker else segment.text


def marks(rate: int) -> list[tuple[str, float]]:
    """Some frequencies of a spectrogram, with their places in percent from the top."""
    return [
        (f"{each / 1000:g} kHz", round(100 * (1 - row_of(each, rate) / ROWS), 2)) for each in _MARKS if each < rate / 2
    ]


def _density_path(counts: Sequence[int]) -> str:
    """A step for each count, a unit wide and at most 100 high."""
    return "M0 100" + "".join(f"V{100 - _height(count, counts):g}h1" for count in counts) + "V100Z"


def _span(start: float, end: float, seconds: float, width: int) -> tuple[float, float]:
    first = round(min(max(start / max(seconds, 1e-9), 0), 1) * width, 2)
    last = round(min(max(end / max(seconds, 1e-9), 0), 1) * width, 2)
    return first, max(round(last - first, 2), width / 1000)


def _ticks(seconds: float, start: float = 0) -> list[tuple[str, float]]:
    """Times for a ruler of so many seconds from a start on, with their places in percent: a dozen at most."""
    if seconds <= 0:
        return []
    step = next((each for each in _STEPS if seconds / each <= _TICKS), 3600)
    digits = 3 if step < 0.01 else 2 if step < 0.1 else 1 if step < 1 else 0
    first = math.ceil(start / step - 1e-6)
    times = [each * step for each in range(first, first + int(seconds / step) + 1)]
    return [
        (clock(time, digits), round(100 * (time - start) / seconds, 2))
        for time in times
        if time - start <= 0.97 * seconds
    ]


def clock(seconds: float, digits: int = 0) -> str:
    """A time in a recording: seconds, or minutes and seconds, with so many digits after the point."""
    if seconds < 60:
        return f"{seconds:.{digits}f}"
    rest = math.floor(seconds % 60 * 10**digits + 1e-6) / 10**digits
    return f"{int(seconds) // 60}:{rest:0{digits + 3 if digits else 2}.{digits}f}"


def _enlarged(pixels: NDArray[np.uint8]) -> tuple[str, int, int, bool]:
    """The URL of an image, how wide and high it is shown, and whether that is larger than it is."""
    height, width = pixels.shape[:2]
    scale = max(_SMALL // max(height, width), 1)
    source = _photo(pixels) if scale == 1 else _url("image/png", colours_png(pixels))
    return source, width * scale, height * scale, scale > 1


def _photo(pixels: NDArray[np.uint8]) -> str:
    try:
        from PIL import Image
    except ImportError:  # which nothing was decoded without
        return _url("image/png", colours_png(pixels))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=85)
    return _url("image/jpeg", file.getvalue())


def _url(kind: str, data: bytes) -> str:
    """A URL of data. It has no character to escape, and may be long."""
    return markup(f"data:{kind};base64,{base64.b64encode(data).decode()}")


def figure(page: Page) -> str:
    """The first picture of a page as an SVG. Raises UsageError if it has none, and MissingExtraError without Jinja2."""
    pictures = [part for part in page.parts if isinstance(part, Recording | Picture | Map | Line)]
    if not pictures:
        raise UsageError("it has no picture: -o FILE.html shows texts and numbers, too")
    part, top = pictures[0], _TOP
    drawn: dict[str, Any] = {"waves": [], "image": "", "marks": [], "shades": [], "spans": [], "ticks": []}
    drawn |= {"columns": 1, "left": _LEFT, "width": _WIDTH, "image_top": top, "image_height": _SPECTROGRAM}
    if isinstance(part, Recording):
        left, width = _LEFT + _GUTTER, _WIDTH - _GUTTER
        ticks = [(time, round(left + width * place / 100, 1)) for time, place in _ticks(part.drawn)]
        drawn |= {"left": left, "width": width, "ticks": ticks, "columns": part.sketch.columns}
        top += _RULER
        for path in waves(part):
            drawn["waves"].append((path, top))
            top += _WAVE
        drawn |= {"image_top": top, "image": _url("image/png", levels_png(part.sketch.levels(), PAPER))}
        drawn["marks"] = [(name, round(top + _SPECTROGRAM * place / 100, 1)) for name, place in marks(part.rate)]
        segments = next((each.listed for each in page.parts if isinstance(each, ShownSegments)), ())
        segments = [each for each in segments if each.start < part.drawn]
        drawn["shades"] = [_placed(each, part, left, width) for each in segments]
        top += _SPECTROGRAM + 6
        for lane in lanes_of(segments)[:_LANES]:
            drawn["spans"] += [(*_placed(each, part, left, width), top, _spoken(each)) for each in lane]
            top += _LANE
    elif isinstance(part, Line):
        drawn |= {"waves": [(wave_path(part.low, part.high, _WAVE_HEIGHT), top)], "columns": len(part.low)}
        top += _WAVE
    elif isinstance(part, Map):
        drawn["image"] = _url("image/png", levels_png(part.levels, PAPER))
        top += _SPECTROGRAM
    else:
        height, width = part.pixels.shape[:2]
        drawn |= {"image": _photo(part.pixels), "width": width, "image_height": height}
        top += height
    facts = f"{part.name} · {part.facts}"
    return environment().get_template("figure.svg").render(page=page, facts=facts, height=top + _LEFT, **drawn)


def _placed(segment: ShownSegment, part: Recording, left: int, width: int) -> tuple[float, float]:
    first, length = _span(segment.start, segment.end, part.drawn, width)
    return round(left + first, 2), length
