"""Run the tests that touch what has changed since a commit: `python tests/near.py BASE`.

`make coverage` has measured which test touches which function. A test is near if it touches a function that has changed
or, where a file has changed outside of its functions, any function of that file. So are the tests of a changed file of
tests, and of those that import a changed module of tests. After a change of the product, conformance suites run, too. A
test that is new since the measurement runs if its file does.

As a plugin of pytest, this leaves out the tests that are not near.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from touch_map import DATA, OUTSIDE, ROOT, TouchMap, functions

CHOSEN = DATA / "near.json"
HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"near: {done.stderr.strip()}")
    return done.stdout


def functions_at(lines: set[int], text: str) -> set[str]:
    """The functions that these lines are in; OUTSIDE for lines that are in none, unless they are empty."""
    bits = sum(1 << line for line in lines)
    found = set[str]()
    for name, span, _ in functions(text) if bits else ():
        if bits & span:
            found.add(name)
            bits &= ~span
    texts = ["", *text.splitlines()]
    return found | {OUTSIDE for line in lines if bits >> line & 1 and texts[line].strip()}


def changed_functions(base: str, path: str) -> set[str]:
    """The functions of a file that are not as they were, as they were named and as they are."""
    old, new = set[int](), set[int]()
    for first, count, first_now, count_now in HUNK.findall(git("diff", "-U0", base, "--", path)):
        old |= set(range(int(first), int(first) + int(count or 1)))
        new |= set(range(int(first_now), int(first_now) + int(count_now or 1)))
    was = git("show", f"{base}:{path}") if git("ls-tree", base, "--", path) else ""
    now = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""
    return functions_at(old, was) | functions_at(new, now)


def importing(modules: set[str]) -> set[str]:
    """The files of tests that import one of these modules of tests, themselves or by others."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    found = set[Path]()
    while modules:
        words = re.compile(rf"^ *(?:from|import) (?:\w+\.)*(?:{'|'.join(modules)})\b", re.MULTILINE)
        new = {path for path, text in texts.items() if path not in found and words.search(text)}
        found |= new
        modules = {path.stem for path in new if not path.name.startswith("test_")}
    return {str(path.relative_to(ROOT)) for path in found}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    files, near, known = map(set, json.loads(CHOSEN.read_text()))
    kept = {
        item
        for item in items
        if item.nodeid in near or item.nodeid not in known or item.nodeid.partition("::")[0] in files
    }
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def main(base: str, *arguments: str) -> int:
    try:
        touched = TouchMap.load()
    except FileNotFoundError:
        sys.exit(
            "near: which test touches what is not known yet: `make coverage` measures it, once, in some 20 minutes"
        )
    listed = git("diff", "--name-only", base) + git("ls-files", "--others", "--exclude-standard")
    paths = {path for path in listed.splitlines() if path.endswith(".py")}
    product = {path for path in paths if not path.startswith("tests/")}
    near = touched.near({f"{path}::{name}" for path in product for name in changed_functions(base, path)})
    files = paths - product
    files |= importing({Path(path).stem for path in files if not Path(path).name.startswith("test_")})
    files |= importing({"conformance"}) if product else set()
    rooms = {Path(path).parent for path in files if path.endswith("/conftest.py")}
    files |= {str(path.relative_to(ROOT)) for room in rooms for path in (ROOT / room).rglob("test_*.py")}
    files = {path for path in files if Path(path).name.startswith("test_") and (ROOT / path).exists()}
    print(f"near: {len(near)} tests touch what has changed since {base}; {len(files)} files of tests run whole")
    selected = files | {path for path in (test.partition("::")[0] for test in near) if (ROOT / path).exists()}
    if not selected:
        return 0
    CHOSEN.write_text(json.dumps([sorted(files), sorted(near), sorted(touched.fixtures)]))
    command = [sys.executable, "-m", "pytest", "-p", "near", *arguments, *sorted(selected)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
