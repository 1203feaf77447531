"""A page: what is shown of a dataset, a sample or a file, in order. Terminals and browsers show the same pages.

Texts are those of the data: a renderer makes them safe. URLs are relative to the root of a server, and quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from touchfs.picture.sketch import Sketch


@dataclass(frozen=True, slots=True)
class ShownSegment:
    """A segment of a recording: its number from 0, seconds from the recording's start, its text and its speaker."""

    number: int
    start: float
    end: float
    text: str = ""
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording of `seconds`, of which the first `drawn` ones are in the picture. `remark` says how it is drawn."""

    name: str
    facts: str
    sketch: Sketch
    rate: int
    seconds: float
    drawn: float
    remark: str = ""
    wav: bytes = b""


@dataclass(frozen=True, slots=True)
class ShownSegments:
    """Some segments of a recording, and how many there are."""

    listed: Sequence[ShownSegment]
    count: int


@dataclass(frozen=True, slots=True)
class Picture:
    """An image: its pixels, shape (height, width, 3), at most as large as they are shown."""

    name: str
    facts: str
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Thumbnails:
    """Small images beside each other: of each a text and its pixels, shape (height, width, 3)."""

    title: str
    words: str
    images: Sequence[tuple[str, NDArray[np.uint8]]]


@dataclass(frozen=True, slots=True)
class Map:
    """An array as levels from 0 to 255, shape (rows, columns)."""

    name: str
    facts: str
    levels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Line:
    """An array of one dimension: the extremes of its columns within -1 and 1, and its first numbers."""

    name: str
    facts: str
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    numbers: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text, or the beginning of one: then `remark` says so."""

    name: str
    text: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """What cannot be shown, with the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class FileList:
    """The names and sizes of files; None for a size that is not known."""

    files: Sequence[tuple[str, int | None]]
    more: int = 0


@dataclass(frozen=True, slots=True)
class HistogramCard:
    """How often values of a range are found: a bar for each of equal parts. `axis` are texts below its two ends.

    `filters` are expressions that find what each bar counts among the samples of `of`, if there are such.
    """

    title: str
    words: str
    counts: Sequence[int]
    axis: tuple[str, str]
    filters: Sequence[str] = ()
    of: str = "samples"


@dataclass(frozen=True, slots=True)
class Bars:
    """Values with their counts, in order; shares are texts such as `61.0 %`. `filters` as for `HistogramCard`."""

    title: str
    words: str
    values: Sequence[tuple[str, int, str]]
    filters: Sequence[str] = ()
    of: str = "samples"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of texts, with the names of its columns."""

    title: str
    names: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class LinkedRecording:
    """A recording of `seconds`, of which the pictures `wave` and `spectrogram` show `drawn` ones, from `start` on.

    `sound` is what browsers can play. `marks` are frequencies with their places in percent from the top. `overview` is
    a picture of all of it, or "", that `overview_remark` explains. `zoom` has the URLs of pages with other parts of it,
    by what they do, and `parts` those of equal parts of all, with their seconds.
    """

    name: str
    facts: str
    seconds: float
    drawn: float
    remark: str
    url: str
    sound: str
    wave: str
    spectrogram: str
    marks: Sequence[tuple[str, float]]
    channels: int
    start: float = 0
    overview: str = ""
    overview_remark: str = ""
    zoom: Sequence[tuple[str, str]] = ()
    parts: Sequence[tuple[float, float, str]] = ()


@dataclass(frozen=True, slots=True)
class LinkedSegment:
    """A segment with its files: their endings and URLs. `sound` is that of its recording, or ""."""

    shown: ShownSegment
    sound: str
    files: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class LinkedSegments:
    """Some segments of a recording, how many there are, and the URL of the directory of all.

    `lanes` are those that are drawn below the recording; if too many would be, `density` has how many there are at a
    time instead, in equal parts of what is drawn. `previous` and `following` are URLs of pages with others, or "".
    `all` is how many the recording has, if the others are of a part of it.
    """

    listed: Sequence[LinkedSegment]
    count: int
    url: str
    lanes: Sequence[ShownSegment] = ()
    density: Sequence[int] = ()
    previous: str = ""
    following: str = ""
    all: int | None = None


@dataclass(frozen=True, slots=True)
class LinkedImage:
    """An image: the file, and what of it is shown, which may be smaller; "" for one that only the link leads to."""

    name: str
    facts: str
    url: str
    source: str


@dataclass(frozen=True, slots=True)
class LinkedVideo:
    """A video. `frames` are pictures of some of its frames: what each is, and its URL. `is_played` by browsers."""

    name: str
    facts: str
    url: str
    frames: Sequence[tuple[str, str]] = ()
    is_played: bool = True


@dataclass(frozen=True, slots=True)
class LinkedFiles:
    """Names, sizes and URLs of files; None for a size that is not known."""

    files: Sequence[tuple[str, int | None, str]]
    more: int = 0


# Only servers have linked ones.
Linked: TypeAlias = LinkedRecording | LinkedSegments | LinkedImage | LinkedVideo | LinkedFiles
Part: TypeAlias = (
    Recording
    | ShownSegments
    | Picture
    | Thumbnails
    | Map
    | Line
    | Text
    | Problem
    | FileList
    | HistogramCard
    | Bars
    | TextTable
    | Linked
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page. `place` is where its subject is, such as the shard and the position in it."""

    title: str
    place: str
    facts: Sequence[str]
    parts: Sequence[Part]
