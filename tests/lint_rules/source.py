"""A text of the checkout that rules look at, and a fault that a rule finds in it."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parent.parent.parent

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.ClassDef | Function


@dataclass(frozen=True, order=True)
class Fault:
    """What is wrong in a line of a text, and what to do about it."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Source:
    """A text. Its path is relative to the checkout. It is parsed when the first rule asks, and only once."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    @property
    def room(self) -> str:
        """Its directory."""
        return str(PurePosixPath(self.path).parent)

    @property
    def module(self) -> str:
        """The name that code imports it by."""
        name = self.path.removeprefix("mount/").removesuffix(".py").replace("/", ".")
        return name.removesuffix(".__init__")


def read_sources() -> list[Source]:
    """All code, all tests, and the pages that readers get."""
    paths = [path for top in ("touchfs", "mount", "tests") for path in (ROOT / top).rglob("*.py")]
    paths += [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")]
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in sorted(paths)]


def code(sources: Sequence[Source]) -> list[Source]:
    """The modules of the two packages."""
    return [each for each in sources if each.path.endswith(".py") and each.path.startswith(("touchfs/", "mount/"))]


def tests(sources: Sequence[Source]) -> list[Source]:
    return [each for each in sources if each.path.endswith(".py") and each.path.startswith("tests/")]


def public(body: list[ast.stmt]) -> Iterator[Documented]:
    """The classes and functions of a body whose names do not begin with an underscore."""
    for node in body:
        if isinstance(node, Documented) and not node.name.startswith("_"):
            yield node


def is_accessory(function: Documented) -> bool:
    """Whether it is an overload or a setter: the function that it belongs to has the docstring."""
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    return bool(decorators & {"overload", "typing.overload"}) or any(d.endswith(".setter") for d in decorators)
