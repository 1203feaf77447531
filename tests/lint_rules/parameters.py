"""The documentation of everything public names each parameter: of a constructor, that of its class.

Modules are not imported, because that takes seconds and needs PyTorch. So a docstring that a class of another package
hands down does not count.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from lint_rules.definitions import Definition, Definitions
from lint_rules.source import Fault, Function, Source, code, is_accessory, public

OWN = "tests/lint_rules/parameters.py"
MODULES = ["touchfs", "touchfs.node", "touchfs.torch", "touchfs.testing", "touchfs.write"]
# The user gets objects of these.
MODULES += ["touchfs.open_dataset", "touchfs.dataset.sample"]


def parameters(sources: Sequence[Source], modules: Sequence[str] = MODULES) -> Iterator[Fault]:
    definitions = Definitions(code(sources))
    faults: set[Fault] = set()  # many nodes inherit the same methods
    for module in modules:
        if module not in definitions.sources:
            faults.add(Fault(OWN, 1, f"there is no module {module}: correct MODULES"))
            continue
        for name in definitions.exported(module):
            if name not in definitions.names(module):
                path = definitions.sources[module].path
                faults.add(Fault(path, 1, f"__all__ has {name}, which the module does not define: correct it"))
            elif found := definitions.find(module, name):
                faults.update(faults_of(definitions, found))
    yield from faults


def faults_of(definitions: Definitions, found: Definition) -> Iterator[Fault]:
    """Of a function, or of a class and the public methods that it defines or inherits."""
    source, node = found
    if not isinstance(node, ast.ClassDef):
        yield from undocumented(node.name, definitions, [found])
        return
    classes = definitions.with_bases(source, node)
    yield from undocumented(node.name, definitions, classes)
    methods: dict[str, list[Definition]] = defaultdict(list)
    owners: dict[str, str] = {}
    for where, kind in classes:
        for name, method in {each.name: each for each in public(kind.body) if not is_accessory(each)}.items():
            methods[name].append((where, method))
            owners.setdefault(name, kind.name)
    for name, overridden in methods.items():
        yield from undocumented(f"{owners[name]}.{name}", definitions, overridden)


def undocumented(label: str, definitions: Definitions, found: Sequence[Definition]) -> Iterator[Fault]:
    """The faults of the first of these. The others are what it overrides: it inherits their docstring."""
    source, node = found[0]
    text = next(filter(None, (ast.get_docstring(each) for _, each in found)), "")
    if isinstance(node, ast.ClassDef):
        names = arguments_of_constructor([each for _, each in definitions.with_bases(source, node)])
    else:
        names = arguments(node)
    for name in names:
        if not name.startswith("_") and not re.search(rf"(?<!\w){name}(?!\w)", text):
            yield Fault(source.path, node.lineno, f"the docstring of {label} does not name {name}: say what it is")


def arguments(function: Function) -> list[str]:
    given = function.args
    single = [each for each in (given.vararg, given.kwarg) if each]
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *single)]
    return [name for name in names if name not in ("self", "cls")]


def arguments_of_constructor(classes: Sequence[ast.ClassDef]) -> list[str]:
    """Of the first class; the others are its bases, in the order in which Python looks attributes up."""
    if "Protocol" in written(classes[0].bases):  # nobody calls its constructor
        return []
    for place, kind in enumerate(classes):
        for node in kind.body:
            if isinstance(node, Function) and node.name in ("__init__", "__new__"):
                return arguments(node)
        if is_record(kind):
            records = [each for each in classes[place:] if is_record(each)]
            return list(dict.fromkeys(name for each in reversed(records) for name in fields(each)))
    return []


def is_record(kind: ast.ClassDef) -> bool:
    """Whether the parameters of its constructor are its fields."""
    return bool({"dataclass", "NamedTuple"} & written((*kind.decorator_list, *kind.bases)))


def fields(kind: ast.ClassDef) -> list[str]:
    """Those that the constructor takes."""
    return [
        ast.unparse(node.target)
        for node in kind.body
        if isinstance(node, ast.AnnAssign)
        and "ClassVar" not in ast.unparse(node.annotation)
        and not (node.value and "init=False" in ast.unparse(node.value))
    ]


def written(names: Sequence[ast.expr]) -> set[str]:
    """Names of bases or decorators, without the module before the name and what is in brackets after it."""
    return {re.split(r"[(\[]", ast.unparse(each))[0].rpartition(".")[2] for each in names}
