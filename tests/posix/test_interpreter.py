"""Programs of ours end with the process that started them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import INSTALLED
from waiting import wait_until

from touchfs.posix.processes import is_readable

PROGRAM = """
import pathlib, time

def main():
    place = pathlib.Path(__file__)
    try:
        place.with_name("began").touch()
        time.sleep(60)
    finally:
        place.with_name("removed").touch()
"""
PARENT = """
import signal, subprocess, time
from touchfs.posix import interpreter
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print(subprocess.Popen(interpreter.program("its", signal.{end})).pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_a_program_ends_with_its_parent(tmp_path: Path, end: str) -> None:
    """The parent ignores SIGTERM, as the workers of a mount do, and blocks it. The program ignores it until then."""
    (tmp_path / "its.py").write_text(PROGRAM)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(end=end)], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        program = os.pidfd_open(int(parent.stdout.readline()))
        wait_until((tmp_path / "began").exists)
        signal.pidfd_send_signal(program, signal.SIGTERM)
        assert not is_readable(program, 0.2)
        parent.kill()
        assert is_readable(program, 30)
        os.close(program)
    assert (tmp_path / "removed").exists() == (end == "SIGTERM")


def test_a_command_does_not_import_pandas(tmp_path: Path) -> None:
    """Nor do the programs that it starts. Where it is installed, pyarrow imports it at the first array."""
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "a.parquet")
    command = [sys.executable, "-X", "importtime", INSTALLED, "info", tmp_path / "a.parquet"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    imported = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "pyarrow.lib" in imported
    assert "pandas" not in imported
