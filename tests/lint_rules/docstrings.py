"""Everything public is documented, but for functions of one statement: their name and their types may say it all."""

import ast
from collections.abc import Iterator, Sequence

from lint_rules.source import Documented, Fault, Source, code, is_accessory, public


def docstrings(sources: Sequence[Source]) -> Iterator[Fault]:
    modules = code(sources)
    classes = (node for source in modules for node in source.nodes if isinstance(node, ast.ClassDef))
    # A method that overrides one which some class documents need not say it again.
    documented = {method.name for node in classes for method in public(node.body) if ast.get_docstring(method)}
    for source in modules:
        if source.tree.body and not ast.get_docstring(source.tree):
            yield Fault(source.path, 1, "the module has no docstring: say what is in it")
        for node in public(source.tree.body):
            if not (ast.get_docstring(node) or may_go_without(node)):
                yield Fault(source.path, node.lineno, f"{node.name} has no docstring: say what it is or does")
            for method in public(node.body) if isinstance(node, ast.ClassDef) else ():
                if not (ast.get_docstring(method) or may_go_without(method) or method.name in documented):
                    message = f"{node.name}.{method.name} has no docstring: say what it does"
                    yield Fault(source.path, method.lineno, message)


def may_go_without(node: Documented) -> bool:
    """What a Protocol promises is said by its docstring alone."""
    is_short = not isinstance(node, ast.ClassDef) and len(node.body) == 1 and ast.unparse(node.body[0]) != "..."
    return is_accessory(node) or is_short
