"""The demo of the README: it verifies what it copies out, and leaves nothing behind, also when it is interrupted."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def demo(tmp_path_factory):
    """Starts the demo in a process group of its own, with a TMPDIR that must be empty at the end.

    It is short: Python's pools of processes have sockets there, whose names have at most 107 bytes.
    """
    tmp_path = tmp_path_factory.mktemp("demo")
    environment = os.environ | {"TMPDIR": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", ROOT / "tests/demo.sh"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    yield start
    assert list(tmp_path.iterdir()) == []
    # Others mount at names that may be no text.
    assert os.fsencode(tmp_path) not in Path("/proc/self/mountinfo").read_bytes()


def interrupt(process):
    """Returns its status. 1: Python itself ends with it if it is interrupted before it has started."""
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=300)
    return process.returncode


def test_the_demo(demo):
    process = demo()
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert "recording 1.296 s, segment 0.654 s: the same samples" in told


@pytest.mark.parametrize("command", ["touchfs mount", "find"])
def test_an_interrupted_demo(demo, command):
    """While it mounts, and while it is mounted."""
    process = demo()
    assert any(line.startswith(f"$ {command} ") for line in process.stdout)
    assert interrupt(process) in (1, 130)


@pytest.mark.variant
def test_a_demo_that_is_interrupted_at_any_time(demo):
    choose = random.Random(1)
    for lines in choose.sample(range(80), 8):
        process = demo()
        for _ in range(lines):
            process.stdout.readline()
        time.sleep(choose.uniform(0, 0.2))
        assert interrupt(process) in (0, 1, 130)
