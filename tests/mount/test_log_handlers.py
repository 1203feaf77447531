"""Log files that are moved away while processes write to them."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from touchfs_mount.logs import logs
from touchfs_mount.logs.logs import LogOptions
from touchfs_mount.numbers.log_level import LogLevel

LINES = 1500
WRITER = """import logging, sys
from touchfs_mount.logs import logs
from touchfs_mount.numbers.log_level import LogLevel
logs.configure(logs.LogOptions("info", sys.argv[1], is_ours=sys.argv[2] == "ours"), LogLevel("info"))
print(flush=True)
for line in range(int(sys.argv[3])):
    logging.getLogger("touchfs.writer").info("%s line %d", sys.argv[4], line)
"""


@pytest.fixture(autouse=True)
def _logging_stays():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
        handler.stream.close()
    root.handlers[:], root.level = handlers, level


@pytest.mark.parametrize("owner", ["ours", "users"])
def test_no_line_is_lost_when_a_log_is_rotated_under_its_writers(tmp_path, owner):
    log = tmp_path / "log"
    command = [sys.executable, "-c", WRITER, log, owner, str(LINES)]
    writers = [subprocess.Popen([*command, str(name)], stdout=subprocess.PIPE) for name in range(3)]
    for writer in writers:
        writer.stdout.readline()
    rotated = 0
    while any(writer.poll() is None for writer in writers):
        if log.exists() and log.stat().st_size > 20_000:
            log.rename(tmp_path / f"log.{rotated}")
            rotated += 1
    assert [writer.communicate() and writer.returncode for writer in writers] == [0, 0, 0]
    assert rotated > 3
    written = [
        line.partition("writer: ")[2] for path in tmp_path.glob("log*") for line in path.read_text().splitlines()
    ]
    assert sorted(written) == sorted(f"{name} line {line}" for name in range(3) for line in range(LINES))


def test_a_log_that_cannot_be_opened_again_goes_on_where_it_was(tmp_path):
    directory, moved = tmp_path / "logs", tmp_path / "moved"
    directory.mkdir()
    logs.configure(LogOptions("info", os.fspath(directory / "log")), LogLevel("info"))
    directory.rename(moved)
    logging.getLogger("test").warning("one")
    assert "one" in Path(moved, "log").read_text()
    directory.mkdir()
    logging.getLogger("test").warning("two")
    assert "two" in Path(directory, "log").read_text()
    shutil.rmtree(directory)
    logging.getLogger("test").warning("three")  # nobody can read it, and nothing fails
