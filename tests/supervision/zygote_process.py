"""A real zygote in a process of its own, for a session that is not mounted: its workers fail at once.

Arguments: its end of the socket, and a file that says what happens when the dataset is opened again.
"""

import os
import signal
import socket
import sys
from pathlib import Path

from touchfs_mount.daemon.renewal import Renewal
from touchfs_mount.daemon.session import Session
from touchfs_mount.daemon.shared import Shared
from touchfs_mount.daemon.zygote import Zygote
from touchfs_mount.mountpoints.options import MountOptions

from touchfs.core.errors import NotFoundError


def reopening() -> str:
    return Path(sys.argv[2]).read_text()


def reopen() -> int:
    match reopening():
        case "fails":
            raise NotFoundError("no such dataset", path="/data")
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hangs":
            signal.pause()
    return os.getpid()


def adopt(pid: int) -> object:
    if pid == os.getpid():
        raise AssertionError("it was opened in the zygote")
    if reopening() == "not-adopted":
        raise NotFoundError("gone meanwhile")
    return lambda descriptor: None


if __name__ == "__main__":
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    options = MountOptions("/nowhere", "shards")
    zygote = Zygote(None, Renewal(reopen, adopt, lambda: None), Shared(1), lambda: None, options, None)
    with socket.socket(fileno=int(sys.argv[1])) as supervisor:
        zygote.serve(supervisor, Session(descriptor, "0:0"), None)
