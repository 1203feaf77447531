"""How much memory a command takes at its peak, with the processes that it starts and waits for: the largest of them."""

import json
import os
import subprocess
import sys
from typing import Any

# A child of a large process begins with its peak, so a small one starts the command.
_LAUNCHER = """
import json, resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1], "w") as file:
    json.dump([status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss], file)
"""


def peak(place: "os.PathLike[str]", *command: Any, **options: Any) -> tuple[subprocess.CompletedProcess[bytes], int]:
    """Runs a command. `place` is a directory for notes. Returns what came of it, and the peak in MB."""
    notes = os.path.join(place, "peak.json")
    options = {"capture_output": True, "stdin": subprocess.DEVNULL, "timeout": 120} | options
    done = subprocess.run([sys.executable, "-S", "-c", _LAUNCHER, notes, *command], check=True, **options)
    with open(notes) as file:
        done.returncode, kilobytes = json.load(file)
    os.unlink(notes)
    return done, kilobytes // 1024


def growth(place: "os.PathLike[str]", imports: str, call: str) -> int:
    """By how many KiB the peak of a process that works in `place` grows with a call."""
    program = f"""if True:
        import re
        from pathlib import Path
        {imports}
        def peak():  # ru_maxrss begins with that of the parent
            return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
        before = peak()
        {call}
        print(peak() - before)
    """
    return int(subprocess.run([sys.executable, "-c", program], cwd=place, capture_output=True, check=True).stdout)
