"""Run the tests under coverage. Print by room how many lines they touch, and how many of these without variants.

What was measured is the map of `near.py` from then on.
"""

import shutil
import subprocess
import sys
from collections import Counter
from functools import reduce
from operator import or_

from coverage import Coverage
from touch_map import DATA, ROOT, TouchMap, touched_lines

CONFIG = ROOT / "pyproject.toml"


def run(arguments: list[str]) -> int:
    """Run pytest under coverage, in all its processes."""
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir()
    DATA.chmod(0o1777)  # tests become other users
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={CONFIG}", f"--data-file={DATA / 'data'}"]
    return subprocess.run([*command, "-m", "pytest", "-p", "touched", *arguments], cwd=ROOT, check=False).returncode


def main() -> int:
    status = run(sys.argv[1:])
    lines = touched_lines()
    touched = TouchMap.of(lines)
    touched.save()
    variants = touched.variants
    counts: dict[str, Counter[str]] = {"lines": Counter(), "all": Counter(), "without": Counter()}
    for path in sorted(path for top in ("touchfs", "mount") for path in (ROOT / top).rglob("*.py")):
        statements = Coverage(config_file=CONFIG, data_file=None).analysis2(str(path))[1]
        by_name = lines.get(str(path.relative_to(ROOT)), {})
        bits = {
            "lines": sum(1 << line for line in statements),
            "all": reduce(or_, by_name.values(), 0),
            "without": reduce(or_, (each for name, each in by_name.items() if name not in variants), 0),
        }
        for room in (f"{path.parent.relative_to(ROOT)}/", "all"):
            for column, each in bits.items():
                counts[column][room] += (each & bits["lines"]).bit_count()
    print(f"\n{'room':<40} {'lines':>6} {'test-all':>9} {'test':>6}")
    for room in sorted(counts["lines"], key=lambda room: (room == "all", room)):
        total, without = counts["all"][room], counts["without"][room]
        print(f"{room:<40} {counts['lines'][room]:>6} {total:>9} {without:>6} {100 * without / max(total, 1):>6.1f} %")
    return status


if __name__ == "__main__":
    sys.exit(main())
