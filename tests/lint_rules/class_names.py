"""A class name means one thing: no two modules define classes of the same name."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence

from lint_rules.source import Fault, Source, code


def class_names(sources: Sequence[Source]) -> Iterator[Fault]:
    places = defaultdict(list)
    for source in code(sources):
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append((source.path, node.lineno))
    for name, (first, *others) in places.items():
        for path, line in others:
            yield Fault(path, line, f"a class called {name} is also in {first[0]}: rename one of them")
