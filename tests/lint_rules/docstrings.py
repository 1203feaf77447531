"""Everything public is documented."""

import ast
from collections.abc import Iterator, Sequence

from lint_rules.source import Fault, Source, code, is_accessory, public


def docstrings(sources: Sequence[Source]) -> Iterator[Fault]:
    modules = code(sources)
    classes = (node for source in modules for node in source.nodes if isinstance(node, ast.ClassDef))
    # A method that overrides one which some class documents need not say it again.
    documented = {method.name for node in classes for method in public(node.body) if ast.get_docstring(method)}
    for source in modules:
        if source.tree.body and not ast.get_docstring(source.tree):
            yield Fault(source.path, 1, "the module has no docstring: say what is in it")
        for node in public(source.tree.body):
            if not ast.get_docstring(node) and not is_accessory(node):
                yield Fault(source.path, node.lineno, f"{node.name} has no docstring: say what it is or does")
            for method in public(node.body) if isinstance(node, ast.ClassDef) else ():
                if not (ast.get_docstring(method) or is_accessory(method) or method.name in documented):
                    message = f"{node.name}.{method.name} has no docstring: say what it does"
                    yield Fault(source.path, method.lineno, message)
