"""The processor time of commands that do little, compared with that of importing the packages that they need:

    touchfs --help       with `import click`
    touchfs ls x.tar     with `import numpy, click`; the tar is indexed, and has 100 samples of a text and a recording

What is compared takes turns, from compiled modules in the page cache; printed are medians of the rounds. The time is
user and system time as wait4(2) tells it. It depends less than elapsed time on what else the machine does.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import wave
from collections.abc import Callable
from pathlib import Path

from harness import TOUCHFS, add, at_most, interleaved, own_cache_and_state, report, run

SAMPLES, FRAMES, ROUNDS = 100, 1600, 31


def make_tar(path: Path) -> None:
    """Samples of a WAV and a text each."""
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setparams((1, 2, 16000, 0, "NONE", ""))
        wav.writeframes(bytes(2 * FRAMES))
    with tarfile.open(path, "w") as tar:
        for sample in range(SAMPLES):
            for extension, data in (("txt", b"one two three"), ("wav", file.getvalue())):
                add(tar, f"s{sample:05d}.{extension}", data)


def processor_time(*command: str | Path) -> Callable[[], float]:
    """Seconds of processor time of a command."""

    def start() -> float:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # else Popen would wait for it again
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        return used.ru_utime + used.ru_stime

    return start


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(root / "bytecode")
        tar = root / "x.tar"
        make_tar(tar)
        contestants = {
            "click": processor_time(sys.executable, "-c", "import click"),
            "help": processor_time(TOUCHFS, "--help"),
            "numpy": processor_time(sys.executable, "-c", "import numpy, click"),
            "ls": processor_time(TOUCHFS, "ls", tar),
        }
        for contestant in contestants.values():
            contestant()  # modules are compiled, and the tar is indexed
        took = interleaved(contestants, ROUNDS)
        rows = []
        for command, own, packages, others, wanted in (
            ("touchfs --help", "help", "import click", "click", 1.5),
            ("touchfs ls of an indexed tar", "ls", "import numpy, click", "numpy", 2.0),
        ):
            ratio = took[own] / took[others]
            times = f"{took[own]:.3f} s, {took[others]:.3f} s: {ratio:.2f}×"
            rows.append((f"{command}, {packages}", times, at_most(ratio, wanted)))
        report(f"Processor time of a start, medians of {ROUNDS} rounds", rows)


if __name__ == "__main__":
    run(main)
