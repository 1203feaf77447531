"""The figure of docs/orders.md shows the orders as they are.

`python tests/node/test_orders_page.py` draws it anew.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from node.test_length_batches import leaf
from node.test_mixture import of_sources

from touchfs.node import LazyIndexedManifestIterator, LazyLengthBatcher, LazyMixture

FIGURE = Path(__file__).parent.parent.parent / "docs" / "orders.svg"
SAMPLES = 384
WIDTH, HEIGHT, MARGIN, COLUMNS = 240, 150, 14, 3
COLORS = ("#3b82c4", "#d9730d")
LENGTHS = [random.Random(number).randrange(8, 128) for number in range(SAMPLES)]


class Dot(NamedTuple):
    """A sample: its height of 0 to 1 in the panel, and its color."""

    height: float
    color: int = 0


def ordered(**order: Any) -> Iterator[Dot]:
    for ordinal in LazyIndexedManifestIterator(range(SAMPLES), **order):
        yield Dot(ordinal / SAMPLES)


def mixed() -> Iterator[Dot]:
    """Two datasets, the first above the second."""
    sizes = (SAMPLES * 3 // 4, SAMPLES // 4)
    sources = [LazyIndexedManifestIterator(range(size), True, which) for which, size in enumerate(sizes)]
    for source, ordinal in of_sources(LazyMixture(*sources, weights=[3, 1])):
        yield Dot((source * sizes[0] + ordinal) / SAMPLES, source)


def by_length() -> Iterator[Dot]:
    """Each second batch in the other color."""
    batches = LazyLengthBatcher(leaf(LENGTHS, shuffle=True, seed=7), max_tokens=2_000)
    for number, batch in enumerate(batches):
        for _, length in batch:
            yield Dot(1 - length / 128, number % 2)


PANELS: dict[str, Callable[[], Iterable[Dot]]] = {
    "the order of the data": ordered,
    "shuffle(7)": lambda: ordered(shuffle=True, seed=7),
    f"shuffle(7, window={SAMPLES // 4})": lambda: ordered(shuffle=True, seed=7, window=SAMPLES // 4),
    f"shuffle(7, window={SAMPLES // 4}, lanes=2)": lambda: ordered(shuffle=True, seed=7, window=SAMPLES // 4, lanes=2),
    "mux([(a, 3), (b, 1)])": mixed,
    "loader(max_tokens=2000): lengths": by_length,
}


def panel(name: str, dots: list[Dot], left: int, top: int) -> Iterator[str]:
    yield f'<text x="{left}" y="{top - 5}">{escape(name)}</text>'
    yield f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" class="frame"/>'
    for color, code in enumerate(COLORS):
        marks = [
            f"M{left + number * WIDTH / len(dots):.1f} {top + 1 + dot.height * (HEIGHT - 2):.1f}h1.6"
            for number, dot in enumerate(dots)
            if dot.color == color
        ]
        if marks:
            yield f'<path d="{"".join(marks)}" stroke="{code}"/>'


def figure() -> str:
    rows = -(-len(PANELS) // COLUMNS)
    width, height = COLUMNS * (WIDTH + MARGIN) + MARGIN, rows * (HEIGHT + 2 * MARGIN) + MARGIN
    drawn = chain.from_iterable(
        panel(
            name,
            list(make()),
            MARGIN + number % COLUMNS * (WIDTH + MARGIN),
            2 * MARGIN + number // COLUMNS * (HEIGHT + 2 * MARGIN),
        )
        for number, (name, make) in enumerate(PANELS.items())
    )
    style = "text{font:11px monospace;fill:#888}path{stroke-width:1.6}.frame{fill:none;stroke:#888;stroke-opacity:.4}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
    return "\n".join([head, f"<style>{style}</style>", *drawn, "</svg>\n"])


def test_the_figure_shows_the_orders_as_they_are() -> None:
    assert FIGURE.read_text() == figure(), "python tests/node/test_orders_page.py draws it"


if __name__ == "__main__":
    FIGURE.write_text(figure())
