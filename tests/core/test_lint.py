"""Each rule of tests/lint.py reports a text that breaks it, in the line that does, and leaves a clean one alone."""

from collections.abc import Callable

import pytest
from lint import RULES
from lint_rules.circles import circles
from lint_rules.class_names import class_names
from lint_rules.commands import commands
from lint_rules.distribution import distribution
from lint_rules.docstrings import docstrings
from lint_rules.pages import pages
from lint_rules.parameters import parameters
from lint_rules.rooms import flat_rooms, rooms
from lint_rules.skips import skips
from lint_rules.sleeps import sleeps
from lint_rules.source import Source
from lint_rules.words import words

TABLE = "| room | files | lines | what |\n|---|---|---|---|\n"
CLEAN = {
    "ARCHITECTURE.md": TABLE + "| `touchfs/` | 2 | 31 | A library. |\n| `touchfs/cli/` | 3 | 8 | Commands. |\n",
    "README.md": "# A library\n\n[Reading](docs/reading.md), [its end](docs/reading.md#the-end-of-it)\n",
    "docs/reading.md": "# Reading\n\n[Back](../README.md#a-library), [the license](../LICENSE)\n\n## The end of it!\n",
    "touchfs/__init__.py": '"""A library."""\nfrom touchfs.reader import Reader, read\n__all__ = ["Reader", "read"]\n',
    "touchfs/reader.py": '''"""Reading."""
from dataclasses import dataclass
from time import sleep
from typing import overload


@dataclass
class _Base:
    path: str

    def seek(self, place: int) -> None:
        """Go to `place`."""


class Reader(_Base):
    """A reader of `path`."""

    def seek(self, place: int) -> None:
        self._place = place


@overload
def read(size: int) -> bytes: ...


def read(size: int) -> bytes:
    """The next `size` bytes."""
    sleep(1)
''',
    "touchfs/cli/__init__.py": '"""Commands."""\n',
    "touchfs/cli/main.py": '"""All commands."""\nSECTIONS = {"Set up": {"setup": "Help."}}\n',
    "touchfs/cli/setup.py": '"""A command."""\n\n\ndef command():\n    """Do it."""\n',
    "tests/test_reader.py": "import time\n\n\ndef test_it(chance):\n    time.sleep(chance.random())\n",
}
# These rules have lists of files and modules of the checkout, which the texts above are not.
OPTIONS = {circles: {"allowed": {}}, parameters: {"modules": ["touchfs"]}, sleeps: {"allowed": {}}}


def faults(rule: Callable, texts: dict[str, str]) -> list[str]:
    """Where the faults are in the clean texts together with these."""
    sources = [Source(path, text) for path, text in (CLEAN | texts).items()]
    return sorted(f"{fault.path}:{fault.line}" for fault in rule(sources, **OPTIONS.get(rule, {})))


@pytest.mark.parametrize("rule", RULES)
def test_clean_texts_have_no_fault(rule):
    assert faults(rule, {}) == []


def module(*lines: str) -> str:
    return "\n".join(['"""A module."""', *lines, ""])


def reader(*lines: str) -> dict[str, str]:
    """Another reader.py, which exports the same names."""
    return {"touchfs/reader.py": module(*lines, "def read(): pass")}


CIRCLE = {
    "mount/x.py": module("def f():", "    import touchfs.y"),
    "touchfs/y.py": module("if TYPE_CHECKING:", "    from touchfs import z"),
    "touchfs/z.py": module("from x import f"),
}
BROKEN = [
    (circles, CIRCLE, ["mount/x.py:3"]),
    (circles, CIRCLE | {"touchfs/z.py": module("import os.path", "from touchfs.reader import read")}, []),
    (circles, reader("from touchfs import Reader"), ["touchfs/reader.py:2"]),
    (class_names, {"mount/x.py": module("class Reader: pass")}, ["mount/x.py:2"]),
    (commands, {"touchfs/cli/copy.py": module("def command(): pass")}, ["touchfs/cli/copy.py:2"]),
    (
        commands,
        {"touchfs/cli/main.py": module("SECTIONS = {'Set up': {'setup': ''}, 'Look': {'cp': ''}}")},
        ["touchfs/cli/main.py:2"],
    ),
    (distribution, {"docs/reading.md": "# Reading\n\n`pip install 'touchfs[zstd]'`"}, ["docs/reading.md:3"]),
    (distribution, {"touchfs/x.py": 'a = "pip install -U touchfs"'}, ["touchfs/x.py:1"]),
    (distribution, {"touchfs/x.py": 'a = version("touchfs")'}, ["touchfs/x.py:1"]),
    (distribution, {"touchfs/x.py": "a = \"pip install 'touchfs-shards[zstd]'\", b.touchfs[c]"}, []),
    (docstrings, {"touchfs/x.py": "a = 1"}, ["touchfs/x.py:1"]),
    (docstrings, {"touchfs/x.py": module("def f():", "    a = 1", "    return a")}, ["touchfs/x.py:2"]),
    (docstrings, {"touchfs/x.py": module("def f(): return 1")}, []),
    (docstrings, {"touchfs/x.py": module("class X: pass")}, ["touchfs/x.py:2"]),
    (docstrings, {"mount/x.py": module("class X:", "    'X.'", "    async def f(self): ...")}, ["mount/x.py:4"]),
    (rooms, {"touchfs/x/__init__.py": module()}, ["ARCHITECTURE.md:1"]),
    (rooms, {"touchfs/x.py": module()}, ["ARCHITECTURE.md:3"]),
    (rooms, {"touchfs/cli/main.py": module("a = 1", "b = 1")}, []),
    (rooms, {"touchfs/cli/main.py": module("a = 1", "b = 1", "c = 1")}, ["ARCHITECTURE.md:4"]),
    (rooms, {"touchfs/cli/__init__.py": module()}, ["ARCHITECTURE.md:4"]),
    (rooms, {"touchfs/cli/x/__init__.py": module("c = 1")}, ["ARCHITECTURE.md:4"] * 2),
    (rooms, {"ARCHITECTURE.md": CLEAN["ARCHITECTURE.md"] + "| `touchfs/x/` | 1 | 1 | X. |\n"}, ["ARCHITECTURE.md:5"]),
    (flat_rooms, {f"touchfs/x{number}.py": "" for number in range(14)}, []),
    (flat_rooms, {f"touchfs/x{number}.py": "" for number in range(15)}, ["touchfs/__init__.py:1"]),
    (flat_rooms, {f"touchfs/cli/x{number}.py": "" for number in range(15)}, []),
    (pages, {"docs/reading.md": "[a](writing.md)\n# The end of it"}, ["docs/reading.md:1"]),
    (pages, {"docs/reading.md": "# Reading\n[a](#writing)\n# The end of it"}, ["docs/reading.md:2"]),
    (pages, {"docs/reading.md": "# Reading"}, ["README.md:3"]),
    (pages, {"docs/writing.md": ""}, ["README.md:1"]),
    (pages, {"touchfs/x.py": module("see = 'docs/writing.md'")}, ["touchfs/x.py:2"]),
    (parameters, {"touchfs/__init__.py": "__all__ = ['Reader', 'read']\ndef read(): pass"}, ["touchfs/__init__.py:1"]),
    (parameters, {"touchfs/__init__.py": "def read(size):\n    'Read.'"}, ["touchfs/__init__.py:1"]),
    (parameters, {"touchfs/__init__.py": "def read(*, _size):\n    'Read.'"}, []),
    (parameters, reader("class Reader:", "    def __init__(self, *paths): pass"), ["touchfs/reader.py:2"]),
    (parameters, reader("class Reader:", "    'Of paths.'", "    def __init__(self, *paths): pass"), []),
    (parameters, reader("class Reader:", "    'Of.'", "    def f(self, *, size): 'Do it.'"), ["touchfs/reader.py:4"]),
    (
        parameters,
        reader("class X:", "    def f(self, a): 'Do.'", "class Reader(X[int]): pass"),
        ["touchfs/reader.py:3"],
    ),
    (parameters, reader("@dataclass(frozen=True)", "class Reader:", "    path: str"), ["touchfs/reader.py:3"]),
    (parameters, reader("class Reader(Protocol[T]):", "    def __init__(self, path): pass"), []),
    (skips, {"tests/x.py": "\n@pytest.mark." + "skip\ndef test_it(): pass"}, ["tests/x.py:2"]),
    (skips, {"tests/x.py": "a = pytest.import" + "orskip('a')"}, ["tests/x.py:1"]),
    (sleeps, {"tests/x.py": "import time as clock\nclock.sleep(0.1)"}, ["tests/x.py:2"]),
    (sleeps, {"tests/x.py": "from trio import sleep as wait\nwait(seconds=-(2 * LIMIT))"}, ["tests/x.py:2"]),
    (sleeps, {"tests/x.py": "from touchfs.reader import sleep\nsleep(1)"}, []),
    (words, {"touchfs/x.py": module("def f(the_thing): pass")}, ["touchfs/x.py:2"]),
    (words, {"mount/x.py": module("self.held = [1 for stuff in f()]")}, ["mount/x.py:2", "mount/x.py:2"]),
]


@pytest.mark.parametrize(("rule", "texts", "found"), BROKEN)
def test_a_text_that_breaks_a_rule_is_reported(rule, texts, found):
    assert faults(rule, texts) == found


def test_no_rule_is_without_a_text_that_breaks_it():
    assert {rule for rule, _, found in BROKEN if found} == set(RULES)


def test_a_file_that_may_sleep_is_named_only_as_long_as_it_does():
    source = Source("tests/x.py", "import time\ntime.sleep(1)")
    assert list(sleeps([source], {"tests/x.py": "a reason"})) == []
    (fault,) = sleeps([source], {"tests/x.py": "a reason", "tests/y.py": "a reason"})
    assert str(fault).startswith("tests/lint_rules/sleeps.py:1: tests/y.py no longer sleeps")


def test_an_import_that_may_be_in_a_circle_is_named_only_as_long_as_it_is_there():
    sources = [Source(path, text) for path, text in CIRCLE.items()]
    assert list(circles(sources, {("touchfs.z", "x"): "a reason"})) == []
    (fault,) = circles(sources, {("touchfs.z", "x"): "a reason", ("x", "touchfs.z"): "a reason"})
    assert str(fault) == "tests/lint_rules/circles.py:1: x no longer imports touchfs.z: delete its line"


def test_a_module_that_users_import_is_there():
    (fault,) = parameters([], ["touchfs.gone"])
    assert str(fault) == "tests/lint_rules/parameters.py:1: there is no module touchfs.gone: correct MODULES"
