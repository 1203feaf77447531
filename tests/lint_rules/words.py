"""Names say what they are."""

import ast
from collections.abc import Iterator, Sequence

from lint_rules.source import Fault, Source, code

# Words of a private dialect: as names they say nothing.
BANNED = {"told", "held", "thing", "things", "stuff", "telling", "doings"}


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
