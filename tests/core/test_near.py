"""`make near` finds the functions that have changed, and the tests that touch them."""

import subprocess

import near
import pytest
import touch_map
from touch_map import OUTSIDE, TouchMap

BEFORE = '''"""A module."""
import os

LIMIT = 1


class Reader:
    """Reads."""

    def read(self):
        def piece():
            return 1
        return piece()

    @property
    def size(self):
        return 2


def write():
    return 3
'''


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one committed module."""

    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path, check=True)

    for module in (near, touch_map):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "touchfs").mkdir()
    (tmp_path / "touchfs/x.py").write_text(BEFORE)
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "x")
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("return 3", "return 4", {"write"}),
        ("return 1", "return 5", {"Reader.read"}),
        ("    @property\n", "", {"Reader.size"}),
        ("LIMIT = 1", "LIMIT = 2", {OUTSIDE}),
        ("LIMIT = 1\n", "LIMIT = 1\n\n", set()),
        ("def write", "def store", {"write", "store"}),
        ("def write():\n    return 3\n", "", {"write"}),
        ("\ndef write", "\ndef new():\n    return 9\n\n\ndef write", {"new"}),
        ("import os\n", "import sys\n", {OUTSIDE}),
        ("return 2", "return (\n    2)", {"Reader.size"}),
    ],
)
def test_what_has_changed_is_named(checkout, old, new, changed):
    path = checkout / "touchfs/x.py"
    path.write_text(BEFORE.replace(old, new))
    assert near.changed_functions("HEAD", "touchfs/x.py") == changed


def test_a_new_and_a_removed_file(checkout):
    (checkout / "touchfs/y.py").write_text(BEFORE)
    assert near.changed_functions("HEAD", "touchfs/y.py") == set()  # git does not know it: no test touches it either
    (checkout / "touchfs/x.py").unlink()
    assert near.changed_functions("HEAD", "touchfs/x.py") == {OUTSIDE, "Reader.read", "Reader.size", "write"}


def test_tests_are_near_by_what_they_touch_and_by_their_fixtures(checkout, monkeypatch):
    line = {text.strip(): 1 << number for number, text in enumerate(BEFORE.splitlines(), 1)}
    tests = checkout / "tests.json"
    tests.write_text('{"t::a": [false, []], "t::b": [true, ["mounted"]], "t::c": [false, []]}')
    monkeypatch.setattr(touch_map, "TESTS", tests)
    touched = TouchMap.of(
        {
            "touchfs/x.py": {
                "t::a": line["return 3"],
                "mounted": line["return 1"],
                "t::c": line["def write():"],
                "": 1 << 4,
            }
        }
    )
    assert touched.near({"touchfs/x.py::write"}) == {"t::a"}  # the line of `def` runs at import
    assert touched.near({"touchfs/x.py::Reader.read"}) == {"t::b"}
    assert touched.near({f"touchfs/x.py::{OUTSIDE}"}) == {"t::a", "t::b", "t::c"}
    assert touched.near({"touchfs/x.py::Reader.size"}) == set()
    assert touched.variants == {"t::b"}


def test_files_that_import_a_module_of_tests_themselves_or_by_another(checkout):
    (checkout / "tests/room").mkdir(parents=True)
    for name, text in {
        "helper.py": "",
        "other.py": "from helper import x",
        "room/test_a.py": "import other",
        "room/test_b.py": "from helper import (\n    x,\n)",
        "room/test_c.py": "import helpers",
    }.items():
        (checkout / "tests" / name).write_text(text)
    assert near.importing({"helper"}) == {"tests/other.py", "tests/room/test_a.py", "tests/room/test_b.py"}
