"""A class name means one thing: no two modules define classes of the same name."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FILES = [*(ROOT / "touchfs").rglob("*.py"), *(ROOT / "mount").rglob("*.py")]


def test_no_class_name_has_two_meanings() -> None:
    modules = defaultdict(list)
    for file in FILES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in modules.items() if len(files) > 1} == {}
