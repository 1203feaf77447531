"""Where memory is short, or a mount ends, no request waits for processes that nobody forks."""

import os
import signal
import threading
from pathlib import Path

import pytest
from tars import write_tar
from touchfs_mount.requests.alone import Alone, Door
from touchfs_mount.requests.strikes import Strikes

from touchfs.errors import SourceError


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def score(pid):
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_the_kernel_ends_a_worker_before_the_mount(mount, tmp_path):
    mounted = mount(write_tar(tmp_path / "a.tar", {"a.txt": b"1"}))
    (worker,) = mounted.workers()
    zygote = parent(worker)
    assert score(worker) >= 500 + min(score(zygote), 0)
    assert score(zygote) == score(parent(zygote)) == score(os.getpid())


def test_a_worker_does_not_hold_the_door_open():
    """The zygote's end of it is closed in its children, so that it closes when the zygote ends."""
    door = Door()
    waiting = door.ask()
    door.inside.close()
    assert waiting.poll(60)
    with pytest.raises(EOFError):
        waiting.recv()
    with pytest.raises(SourceError, match="ended"):  # long before the 100 s that it would be given
        Alone(Strikes(1), door, 100).answer(1, "read", ())
    waiting.close()
    door._outside.close()


def test_a_mount_whose_zygote_ends_leaves_no_reader_waiting(mount, tmp_path):
    mounted = mount(write_tar(tmp_path / "a.tar", {"a.txt": b"1" * 5_000_000}))
    (worker,) = mounted.workers()
    zygote = parent(worker)
    ends = {os.readlink(f"/proc/{zygote}/fd/{each}") for each in os.listdir(f"/proc/{zygote}/fd")}
    ends = {each for each in ends if each.startswith("socket:")}
    held = {os.readlink(f"/proc/{worker}/fd/{each}") for each in os.listdir(f"/proc/{worker}/fd")}
    # Of the sockets of the zygote, a worker has the other end of the door only.
    assert len(ends - held) >= 2
    os.kill(parent(zygote), signal.SIGKILL)
    os.kill(zygote, signal.SIGKILL)

    def read():
        try:
            while (mounted.path / "shards" / "a" / "a.txt").read_bytes():
                pass
        except OSError:
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)
    assert not reader.is_alive()
