"""The command `touchfs` for tests: TOUCHFS, which starts in a tenth of the time of INSTALLED.

A start of Python with our modules takes 0.3 s of processor. TOUCHFS is a program that asks a fork server for a process
instead (`fork_server.py`), with its own arguments, environment, descriptors and so on. Where such a process would be
another than one of INSTALLED (user, session, mount namespace, locale, …), it becomes INSTALLED. `cli/test_command.py`
compares both for each command. A test of the process itself, as its memory or its place in /proc, takes INSTALLED.
"""

import atexit
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

INSTALLED = Path(sys.executable).with_name("touchfs")


def _start_server() -> tuple[Path, int]:
    """Start a server that ends with this process. Returns the program that asks it, and its process id."""
    place = Path(tempfile.mkdtemp(prefix="touchfs-command."))
    place.chmod(0o755)  # tests run commands as another user
    here = Path(__file__).parent
    program = place / "touchfs"
    program.write_text(f"#!{sys.executable} -IS\n" + (here / "launcher.py").read_text())
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(os.fspath(place / "socket"))
        (place / "socket").chmod(0o666)
        listener.listen(64)
        ended, _kept_until_we_end = os.pipe()
        ended, until_we_end = os.pipe()
        server = subprocess.Popen(
            [sys.executable, here / "fork_server.py", str(listener.fileno()), INSTALLED, place],
            stdin=ended,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            process_group=0,  # what interrupts the tests is not for it
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # NumPy starts no threads
        )
        os.close(ended)

    @atexit.register
    def end() -> None:
        os.close(until_we_end)
        server.wait()

    return program, server.pid


TOUCHFS, SERVER = _start_server()
