"""A slow file system (`slow_files`) as tests use it. It goes on, and is unmounted, whatever happens."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent


class Slow:
    """What `source` holds is at `path`, as slow as is said here."""

    def __init__(self, source: Path, path: Path) -> None:
        self.path = path
        self._delay = path.with_suffix(".delay")
        path.mkdir()
        self.take(0)
        command = [sys.executable, HERE / "slow_files.py", source, path, self._delay]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def take(self, seconds: float, reads: float = 0) -> None:
        """So long each request takes from now on, those that are there included; and reads take so much longer."""
        new = self._delay.with_suffix(".new")
        new.write_text(f"{seconds} {reads}")
        new.replace(self._delay)

    def hang(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.take(0)
        self.go_on()
        subprocess.run(["fusermount3", "-u", "-z", self.path], check=True)
        self._process.kill()
        self._process.communicate()


@contextmanager
def slow(source: Path, path: Path) -> Iterator[Slow]:
    files = Slow(source, path)
    try:
        yield files
    finally:
        files.end()


@contextmanager
def readers(files: Slow, *paths: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process for each path that reads it from its beginning to its end. One that waits for the slow files can be
    killed only when those go on.
    """
    running = [subprocess.Popen(["cat", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for path in paths]
    try:
        yield running
    finally:
        files.go_on()
        for process in running:
            process.kill()
        for process in running:
            process.communicate(timeout=60)


def cpu_seconds(pid: int) -> float:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / os.sysconf(
        "SC_CLK_TCK"
    )
