"""Print a table of the line coverage of the lowest floors, by room, from the data that `pytest --cov` wrote.

The floors are those of import-linter in pyproject.toml, from errors up to catalogs and stored samples.
"""

import tomllib
from collections import Counter
from pathlib import Path

from coverage import Coverage

HIGHEST = "touchfs.catalog"
ROOT = Path(__file__).parent.parent


def files() -> list[Path]:
    """The files of these floors."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = [[name.strip() for name in floor.split("|")] for floor in contracts[0]["layers"]]
    highest = next(number for number, floor in enumerate(floors) if HIGHEST in floor)
    modules = [name for floor in floors[highest:] for name in floor]
    paths = [ROOT / name.replace(".", "/") for name in modules]
    return sorted(
        file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")])
    )


def main() -> None:
    coverage = Coverage(config_file=ROOT / "pyproject.toml")
    coverage.load()
    lines: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for file in files():
        _, statements, _, missing, _ = coverage.analysis2(str(file))
        for room in (f"{file.parent.relative_to(ROOT)}/", "all"):
            lines[room] += len(statements)
            missed[room] += len(missing)
    print(f"\n{'room':<22} {'lines':>6} {'missed':>6} covered")
    for room in sorted(lines, key=lambda room: (room == "all", room)):
        covered = 100 * (1 - missed[room] / max(lines[room], 1))
        print(f"{room:<22} {lines[room]:>6} {missed[room]:>6} {covered:>6.1f} %")


if __name__ == "__main__":
    main()
