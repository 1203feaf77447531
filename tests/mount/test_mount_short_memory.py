"""Where memory is short, or a mount ends, the mount lives, and nobody waits for ever."""

import os
import signal
import threading
from pathlib import Path

from tars import write_tar


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


def test_a_mount_whose_zygote_ends_leaves_no_reader_waiting(mount, tmp_path):
    mounted = mount(write_tar(tmp_path / "a.tar", {"a.txt": b"1" * 5_000_000}))
    (worker,) = mounted.workers()
    zygote = parent(worker)
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
