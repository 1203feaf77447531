"""A mount as a service of systemd, by its protocol: a datagram socket that $NOTIFY_SOCKET names."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from command import TOUCHFS
from mounts import workers
from waiting import wait_until


@contextmanager
def service(source: Path, path: Path, *options: object, **environment: str) -> Iterator:
    """A mount in the foreground, and what it sends: a function that returns the messages since the last call."""
    address = f"@touchfs-service-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address.replace("@", "\0"))
        systemd.setblocking(False)

        def received() -> list[str]:
            found = []
            while True:
                try:
                    found.append(systemd.recv(4096).decode())
                except BlockingIOError:
                    return found

        environment = os.environ | {"NOTIFY_SOCKET": address} | environment
        with subprocess.Popen([TOUCHFS, "mount", "-f", source, path, *map(str, options)], env=environment) as daemon:
            try:
                yield daemon, received
            finally:
                daemon.terminate()
                assert daemon.wait(60) == 0


def test_the_watchdog_starves_when_no_worker_answers(speech, tmp_path):
    with service(speech, tmp_path / "mnt", "--stuck-seconds", 1.5, WATCHDOG_USEC="400000") as (_, received):
        wait_until(lambda: "WATCHDOG=1" in received())
        pid = json.loads((tmp_path / "mnt" / ".touchfs" / "info").read_bytes())["pid"]
        (worker,) = workers(pid)
        os.kill(worker, signal.SIGSTOP)
        received()
        meanwhile: list[str] = []

        def is_replaced() -> bool:
            """When it is stuck."""
            before = received()
            if worker in (now := workers(pid)):
                meanwhile.extend(before)
            return now not in ([], [worker])

        wait_until(is_replaced)
        assert meanwhile.count("WATCHDOG=1") <= 1  # what was on its way when it stopped
        wait_until(lambda: "WATCHDOG=1" in received())


def test_indexing_extends_the_time_limit_of_the_start(speech, tmp_path):
    shutil.copytree(speech, tmp_path / "shards")
    messages: list[str] = []
    with service(tmp_path / "shards", tmp_path / "mnt", "--no-index-cache") as (_, received):
        wait_until(lambda: messages.extend(received()) or any("READY=1" in each for each in messages))
    assert re.fullmatch(r"EXTEND_TIMEOUT_USEC=\d+\nSTATUS=indexing: \d+%", messages[0])
    assert messages[-1].startswith("READY=1\nSTATUS=")
    assert "3 shards" in messages[-1]
    assert not any("WATCHDOG" in each for each in messages)
