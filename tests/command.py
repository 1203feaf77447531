"""The command `touchfs` for tests: TOUCHFS, which starts in a tenth of the time of INSTALLED.

A start of Python with our modules takes 0.3 s of processor. TOUCHFS is a program (`launcher.c`) that asks a fork server
for a process instead (`fork_server.py`), with its own arguments, environment, descriptors and so on. Where such a
process would be another than one of INSTALLED (user, session, mount namespace, locale, …), it becomes INSTALLED.
`cli/test_command.py` compares both for each command. A test of the process itself, as its memory or its place in /proc,
takes INSTALLED.

Beside TOUCHFS is such a `python`, for programs of our users: its forks have imported what these import, as torch.
"""

import atexit
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

INSTALLED = Path(sys.executable).with_name("touchfs")
# So that NumPy and the allocator of pyarrow start none when they are imported.
NO_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
# Commands that start a process for each CPU. That takes a second of processor, so tests of several processes say how
# many. The examples of the help and of pages show what happens by default.
PARALLEL = ("convert", "index", "interleave", "meta put", "pack shar", "pack tar", "pack touchnet", "verify")
SAID = {"--jobs", "--num-workers", "--workers", "--dask", "--help", "--help-all", "-h"}


def in_one_process(*arguments: Any) -> list[Any]:
    """The arguments of a command, which say that it starts no others unless they say how many."""
    told = list(map(str, arguments))
    is_parallel = {" ".join(told[:words]) for words in (1, 2)}.intersection(PARALLEL) and not SAID.intersection(told)
    return [*arguments, *(["--jobs", "1"] if is_parallel else [])]


@contextmanager
def fork_server(*before: str, owner: int = -1) -> Iterator[tuple[Path, int]]:
    """Yields a program that asks a server for `touchfs`, and the server's process id. It ends with us at the latest.

    What is put before the server's command starts it as another user, whom its files then belong to.
    """
    place = Path(tempfile.mkdtemp(prefix="touchfs-command."))
    os.chown(place, owner, owner)
    place.chmod(0o755)  # tests run commands as another user
    here = Path(__file__).parent
    program = place / "touchfs"
    subprocess.run(["cc", "-O1", "-o", program, here / "launcher.c"], check=True)
    os.link(program, place / "python")
    (place / "python3").symlink_to("python")
    with ExitStack() as listeners:
        numbers = [listeners.enter_context(_listener(place / name)).fileno() for name in ("small", "large", "programs")]
        ended, until_we_end = os.pipe()
        server = subprocess.Popen(
            [*before, sys.executable, here / "fork_server.py", *map(str, numbers), INSTALLED, place],
            stdin=ended,
            stdout=subprocess.DEVNULL,
            pass_fds=numbers,
            process_group=0,  # what interrupts the tests is not for it
            env=os.environ | NO_THREADS,
        )
        os.close(ended)
    try:
        yield program, server.pid
    finally:
        os.close(until_we_end)
        server.wait()


def _listener(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(os.fspath(path))
    path.chmod(0o666)
    listener.listen(64)
    return listener


_ours = ExitStack()
atexit.register(_ours.close)
TOUCHFS, SERVER = _ours.enter_context(fork_server())
