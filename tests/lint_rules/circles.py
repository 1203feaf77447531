"""No circle of files: there is an order in which each file imports only files before it.

An import counts wherever it is, in a function or for types only. import-linter has a contract against circles of rooms,
but what a room's own `__init__.py` imports from the room, and files of the room from it, is no circle to it.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from lint_rules.source import Fault, Source, code

OWN = "tests/lint_rules/circles.py"
# Imports that do not count, and why.
ALLOWED: dict[tuple[str, str], str] = {
    ("touchfs.source.data", "touchfs.source.archived.store"): "an archive lies in another store: not yet looked at",
}


def imports(source: Source, modules: Collection[str]) -> dict[str, int]:
    """The modules that a file imports, with the lines where it does."""
    found = {}
    for node in source.nodes:
        match node:
            case ast.Import(names=names):
                found |= {each.name: node.lineno for each in names}
            case ast.ImportFrom(module=str(module), names=names):
                inner = (f"{module}.{each.name}" for each in names)
                found |= {name if name in modules else module: node.lineno for name in inner}
            case _:
                pass
    return {name: line for name, line in sorted(found.items()) if name in modules}


def circles(sources: Sequence[Source], allowed: Mapping[tuple[str, str], str] = ALLOWED) -> Iterator[Fault]:
    files = {each.module: each for each in code(sources)}
    found = {name: imports(each, files.keys()) for name, each in sorted(files.items())}
    for importer, imported in allowed:
        if found.get(importer, {}).pop(imported, None) is None:
            yield Fault(OWN, 1, f"{importer} no longer imports {imported}: delete its line")
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        # Each is imported by the next one.
        circle = error.args[1]
        line = found[circle[1]][circle[0]]
        yield Fault(files[circle[1]].path, line, f"files import each other in a circle: {' <- '.join(circle)}")
