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
def demo(tmp_path):
    """Starts the demo in a process group of its own, with a TMPDIR that must be empty at the end."""
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
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_the_demo(demo):
    process = demo()
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 0, told
    assert "recording 1.296 s, segment 0.654 s: the same samples" in told


def test_an_interrupted_demo(demo):
    choose = random.Random(1)
    for _ in range(4):
        process = demo()
        time.sleep(choose.uniform(0.05, 1.0))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        # 1: Python itself ends with it if it is interrupted before it has started.
        assert process.returncode in (0, 1, 130)
