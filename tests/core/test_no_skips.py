"""No test is skipped: what is not installed makes its tests fail, or nobody would notice that they never run."""

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent


def test_no_test_may_be_skipped():
    words = re.compile(r"importorskip|pytest\.skip|skipif|mark\.skip|xfail")
    found = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in sorted({*TESTS.rglob("*.py")} - {Path(__file__)})
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert found == []
