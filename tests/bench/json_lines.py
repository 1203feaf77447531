"""Indexing JSON lines: one process against touchfs of the commit $TOUCHFS_BEFORE, if it is set, and two processes
against one, for plain lines and for lines with segments. One process is compared by its CPU seconds; two need two free
cores.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from daemons import checkout
from harness import at_least, at_most, machine, report, run

ROUNDS = 3
LINES = {"plain": 200_000, "with segments": 20_000}
# Prints the seconds, and CPU seconds of the first process, that a catalog of argv[1] takes with argv[3] processes.
INDEX = """
import sys, time
from touchfs.cli.terminal import executor
from touchfs.indexing.catalogs import make_catalog
if __name__ == "__main__":
    with executor(int(sys.argv[3])) as pool:
        begin, used = time.perf_counter(), time.process_time()
        make_catalog(sys.argv[1], sys.argv[2], **({"executor": pool} if pool else {}))
        print(time.perf_counter() - begin, time.process_time() - used)
"""
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "runs"]


def line(number: int, chosen: random.Random) -> str:
    """A line of a manifest, of about 200 bytes."""
    return json.dumps(_fields(number, chosen)) + "\n"


def line_with_segments(number: int, chosen: random.Random) -> str:
    """A line with six segments."""
    segments = [{"start": 2 * i, "end": 2 * i + 1.5, "text": " ".join(chosen.choices(WORDS, k=5))} for i in range(6)]
    return json.dumps(_fields(number, chosen) | {"segments": segments}) + "\n"


def _fields(number: int, chosen: random.Random) -> dict[str, str | float]:
    return {
        "id": f"utt-{number:09d}",
        "audio_filepath": f"train/{number // 1000:05d}/{number:09d}.wav",
        "offset": round(chosen.uniform(0, 3600), 3),
        "duration": round(chosen.uniform(1, 20), 3),
        "text": " ".join(chosen.choices(WORDS, k=10)),
        "lang": "en",
        "speaker": f"spk{chosen.randrange(5000):04d}",
    }


def compare(
    place: Path, before: Path | None, kind: str, make: Callable[[int, random.Random], str]
) -> list[tuple[str, str, str]]:
    """The rows of the report about lines of a kind. `before` is the tree of touchfs of before."""
    script, data, chosen = place / "index.py", place / f"{kind}.jsonl", random.Random(5)
    with open(data, "w") as file:
        file.writelines(make(number, chosen) for number in range(LINES[kind]))

    def seconds(processes: int, code: Path | None = None) -> tuple[float, float]:
        command = [sys.executable, "-P", script, data, place / f"catalog.{processes}", str(processes)]
        environment = {} if code is None else {"PYTHONPATH": f"{code}:{code / 'mount'}"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment)
        taken, used = done.stdout.split()
        return float(taken), float(used)

    runs: dict[str, list[tuple[float, float]]] = {"one": [], "two": [], "before": []}
    for _ in range(ROUNDS):
        if before is not None:
            runs["before"].append(seconds(1, before))
        runs["one"].append(seconds(1))
        runs["two"].append(seconds(2))
    assert (place / "catalog.1").read_bytes() == (place / "catalog.2").read_bytes()
    one, used = (min(each) for each in zip(*runs["one"], strict=True))
    rows = [(f"{LINES[kind]:,} lines {kind}, one process, CPU", f"{used:.2f} s", "")]
    ratio = one / min(taken for taken, _ in runs["two"])
    rows.append((f"{kind}, one process : two", f"{ratio:.2f}", at_least(ratio, 1.3) if kind != "plain" else ""))
    if runs["before"]:
        ratio = used / min(each for _, each in runs["before"])
        rows.append(
            (f"{kind}, one process : before, CPU", f"{ratio:.2f}", at_most(ratio, 0.5) if kind == "plain" else "")
        )
    return rows


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place, reference = Path(name), os.environ.get("TOUCHFS_BEFORE")
        before = stack.enter_context(checkout(reference)) if reference else None
        (place / "index.py").write_text(INDEX)
        rows = compare(place, before, "plain", line) + compare(place, before, "with segments", line_with_segments)
        if before is None:
            rows.append(("one process : before", "", "TOUCHFS_BEFORE names no commit"))
        report(f"JSON lines, {machine()}", rows)


if __name__ == "__main__":
    run(main)
