"""Commands that are killed while they work, and what they have stored by then."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from waiting import wait_until


def kill_when(command: list[object], ready: Callable[[], bool], **options: object) -> None:
    """Start a command, and kill it, but not its workers, as soon as `ready` returns true."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet, **options) as process:
        while process.poll() is None and not ready():
            time.sleep(0.005)
        process.kill()


def go_on(run: Callable[[], subprocess.CompletedProcess[bytes]]) -> subprocess.CompletedProcess[bytes]:
    """Run a command after another one was killed: again for as long as workers of that go on, which is said then."""
    while b"is at work here: wait for it" in (done := run()).stderr:
        pass
    return done


def tree(place: Path) -> dict[str, bytes]:
    """The bytes of each file. The workers of a killed command may still remove a last one: then we look again."""

    def look() -> tuple[dict[str, bytes]] | None:
        try:
            return ({str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()},)
        except FileNotFoundError:
            return None

    (found,) = wait_until(look)
    return found
