"""Names say what they are, and sentences are plain English."""

import ast
import re
from collections.abc import Iterator, Sequence

from lint_rules.source import Fault, Source, code

# Words of a private dialect: as names they say nothing.
BANNED = {"told", "held", "thing", "things", "stuff", "telling", "doings"}
# Phrases without a good use in code, and what to write.
PHRASES = {
    r"\b[Ww]hoever\b": "name the reader, user or process",
    r"\banew\b": "again, or a verb: rebuild, replace, restart",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bfor so long\b": "for this time",
    r"(?<!there )\b(is|are) none\b(?! of)": "is not one, or what it is",
    r'"""As `': "Like `",
}


def names(source: Source) -> Iterator[tuple[str, int]]:
    """Each name that the code gives, and the line of it."""
    for node in source.nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name, node.lineno
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case _:
                pass


def words(sources: Sequence[Source]) -> Iterator[Fault]:
    for source in code(sources):
        for name, line in names(source):
            for word in BANNED.intersection(name.lower().split("_")):
                yield Fault(source.path, line, f"the name {name} has the word {word}: name what it is")
        for number, line in enumerate(source.text.split("\n"), 1):
            for phrase, better in PHRASES.items():
                if found := re.search(phrase, line):
                    yield Fault(source.path, number, f"{found[0]!r} reads as translated: write {better}")
