"""The map from tests to the functions that they touch, as `make coverage` has measured it.

Lines move with every change. So the map has the functions that they were in.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA = ROOT / ".coverage-data"
MAP, TESTS = DATA / "map.json", DATA / "tests.json"
# In the place of a function: lines that are in none, which run when the module is imported.
OUTSIDE = ""
# By file and by name of a test or fixture: bits of the lines that it touched.
Lines = dict[str, dict[str, int]]
QUERY = """
    SELECT path, context, numbits FROM line_bits
    JOIN file ON file.id = file_id JOIN context ON context.id = context_id
"""


def functions(text: str) -> Iterator[tuple[str, int, int]]:
    """The name of each function, with its class, and the bits of its lines: of all, and of its body.

    A function within another one is a part of it. The lines above a body run when the module is imported.
    """

    def visit(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, int, int]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                end = 1 << (node.end_lineno or first) + 1
                yield prefix + node.name, end - (1 << first), end - (1 << node.body[0].lineno)
            elif isinstance(node, ast.ClassDef):
                yield from visit(node.body, f"{prefix}{node.name}.")

    return visit(ast.parse(text).body, "")


def touched_lines() -> Lines:
    """Read what all processes of a run under coverage have written."""
    lines: Lines = defaultdict(lambda: defaultdict(int))
    for part in DATA.glob("data.*"):
        with closing(sqlite3.connect(part)) as data, suppress(sqlite3.DatabaseError):  # of a process that was killed
            for path, name, bits in data.execute(QUERY):
                lines[str(Path(path).relative_to(ROOT))][name] |= int.from_bytes(bits, "little")
    return lines


@dataclass(frozen=True, slots=True)
class TouchMap:
    """By test: whether it is a variant, and its shared fixtures. By function (`FILE::NAME`): who touches it."""

    variants: frozenset[str]
    fixtures: dict[str, list[str]]
    touching: dict[str, list[str]]

    @classmethod
    def of(cls, lines: Lines) -> TouchMap:
        tests = json.loads(TESTS.read_text())
        touching: dict[str, list[str]] = {}
        for path, by_name in lines.items():
            for function, _, body in functions((ROOT / path).read_text(encoding="utf-8")):
                touching[f"{path}::{function}"] = [name for name, bits in by_name.items() if name and bits & body]
            touching[f"{path}::{OUTSIDE}"] = sorted(filter(None, by_name))
        variants = frozenset(test for test, (variant, _) in tests.items() if variant)
        return cls(variants, {test: fixtures for test, (_, fixtures) in tests.items()}, touching)

    def save(self) -> None:
        """The data of coverage are hundreds of megabytes, and no longer needed."""
        MAP.write_text(json.dumps([sorted(self.variants), self.fixtures, self.touching]))
        for part in DATA.glob("data.*"):
            part.unlink()

    @classmethod
    def load(cls) -> TouchMap:
        """Raises FileNotFoundError."""
        variants, fixtures, touching = json.loads(MAP.read_text())
        return cls(frozenset(variants), fixtures, touching)

    def near(self, changed: set[str]) -> set[str]:
        """The tests that touch one of these functions, themselves or by a shared fixture."""
        names = {name for function in changed for name in self.touching.get(function, ())}
        return {test for test, fixtures in self.fixtures.items() if test in names or not names.isdisjoint(fixtures)}
