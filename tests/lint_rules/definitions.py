"""What a name of a module is, and the base classes of a class, as the parsed texts have it: nothing is imported."""

import ast
from collections.abc import Iterator, Sequence

from lint_rules.source import Documented, Source

# A class or function, and the file that defines it.
Definition = tuple[Source, Documented]
# A name of a module is a statement that defines it, or a name that is imported from another module.
Meaning = ast.stmt | tuple[str, str]


def meanings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, Meaning]]:
    """The names that a module defines at its top level."""
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node
            case ast.ImportFrom(module=str(module), names=aliases):
                yield from ((each.asname or each.name, (module, each.name)) for each in aliases)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
            case ast.If() | ast.Try():
                for part in (node.body, *(each.body for each in getattr(node, "handlers", ())), node.orelse):
                    yield from meanings(part)
            case _:
                pass


class Definitions:
    """The definitions of all modules, by the names that code has for them."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = {each.module: each for each in sources}
        self._names: dict[str, dict[str, Meaning]] = {}

    def names(self, module: str) -> dict[str, Meaning]:
        """If a module defines a name twice, the last definition counts, as in Python."""
        if module not in self._names:
            self._names[module] = dict(meanings(self.sources[module].tree.body))
        return self._names[module]

    def exported(self, module: str) -> list[str]:
        """The public names in `__all__`, or those of the classes and functions that the module defines."""
        match self.names(module).get("__all__"):
            case ast.Assign(value=value):
                names = ast.literal_eval(value)
            case _:
                names = [name for name, meaning in self.names(module).items() if isinstance(meaning, Documented)]
        return [name for name in names if not name.startswith("_")]

    def find(self, module: str, name: str) -> Definition | None:
        """The class or function of ours that a name means. Imports are followed."""
        while module in self.sources:
            match self.names(module).get(name):
                case (str(), str()) as imported:
                    module, name = imported
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() as node:
                    return self.sources[module], node
                case _:
                    return None
        return None

    def with_bases(self, source: Source, kind: ast.ClassDef) -> list[tuple[Source, ast.ClassDef]]:
        """A class, then those of ours that it inherits from, in the order in which Python looks attributes up."""
        order = [(source, kind)]
        for base in kind.bases:
            match self.find(source.module, ast.unparse(base).partition("[")[0]):
                case (where, ast.ClassDef() as found):
                    order += self.with_bases(where, found)
                case _:
                    pass
        # Python looks into a class that two bases share after both of them, so its last occurrence counts.
        return list(dict.fromkeys(reversed(order)))[::-1]
