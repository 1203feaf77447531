"""Names say what they are, and everything public is documented."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FILES = [*(ROOT / "touchfs").rglob("*.py"), *(ROOT / "mount").rglob("*.py")]

# Words of a private dialect: as names they say nothing.
BANNED = {"told", "held", "thing", "things", "stuff", "telling", "doings"}

Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """All that the code calls by a name of its own, and in which line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name, node.lineno
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case _:
                pass


def test_no_name_is_of_a_private_dialect():
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in FILES
        for name, line in names(ast.parse(file.read_text()))
        if BANNED.intersection(name.lower().split("_"))
    ]
    assert found == []


def public(body: list[ast.stmt]) -> Iterator[Documented]:
    for node in body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node


def is_exempt(function: Documented) -> bool:
    """Overloads have no docstring of their own."""
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    return bool(decorators & {"overload", "typing.overload"}) or any(d.endswith(".setter") for d in decorators)


def documented_methods() -> set[str]:
    """Names of methods that some class documents: what overrides them need not say it again."""
    found = set()
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found |= {each.name for each in public(node.body) if ast.get_docstring(each)}
    return found


def test_everything_public_is_documented():
    inherited, missing = documented_methods(), []
    for file in FILES:
        tree = ast.parse(file.read_text())
        if tree.body and not ast.get_docstring(tree):
            missing.append(str(file.relative_to(ROOT)))
        for node in public(tree.body):
            if not ast.get_docstring(node) and not is_exempt(node):
                missing.append(f"{file.relative_to(ROOT)}:{node.lineno}: {node.name}")
            if isinstance(node, ast.ClassDef):
                for method in public(node.body):
                    if not (ast.get_docstring(method) or is_exempt(method) or method.name in inherited):
                        missing.append(f"{file.relative_to(ROOT)}:{method.lineno}: {node.name}.{method.name}")
    assert missing == []
