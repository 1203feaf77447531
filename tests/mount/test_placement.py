"""On which processors a worker runs, as the kernel tells it: it follows a lone reader while all processors are busy."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from command import INSTALLED
from processes import children
from spikes import SpikeMount, workers_of
from touchfs_mount.loop.placement import Placement
from waiting import wait_until

EVERYWHERE = os.sched_getaffinity(0)
PLACE = max(EVERYWHERE)
READER = """
import os, sys
while True:
    for path in sys.argv[1:]:
        descriptor = os.open(path, os.O_RDONLY)
        os.read(descriptor, 4096)
        os.close(descriptor)
"""
# Reads and compares until its stdin ends.
READER_OF_WHOLE_FILES = """
import os, select, sys
texts = {path: open(path, "rb").read() for path in sys.argv[1:]}
while not select.select([0], [], [], 0)[0]:
    for path, text in texts.items():
        with open(path, "rb", 0) as file:
            assert file.read() == text, path
"""
KILLS = 3
# Installs a filter that answers EPERM to sched_setaffinity (seccomp(2), linux/filter.h), then follows a reader.
FORBIDDEN = """
import ctypes, logging, os, platform, struct
from touchfs_mount.loop.placement import Placement
number = {"x86_64": 203, "aarch64": 122}[platform.machine()]
program = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(program), ctypes.addressof(code))), 0, 0) == 0
logging.basicConfig(level="DEBUG")
placement = Placement()
for _ in range(3):
    placement.opened(os.getppid())
    placement.look(may_follow=True)
    assert placement.is_free
"""


places_of = os.sched_getaffinity


@contextmanager
def running(*command: object, place: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs until the end of the block, on one processor if one is given."""
    with subprocess.Popen([sys.executable, *map(str, command)]) as process:
        try:
            if place is not None:
                os.sched_setaffinity(process.pid, {place})
            yield process
        finally:
            process.kill()


@pytest.fixture
def busy() -> Iterator[None]:
    """Each processor has a busy loop, which takes what is left of it by others."""
    with ExitStack() as stack:
        for place in EVERYWHERE:
            stack.enter_context(running("-c", "import os; os.nice(19)\nwhile True: pass", place=place))
        yield


@pytest.fixture
def anywhere() -> Iterator[None]:
    """After a test in this process its processors are as they were."""
    yield
    os.sched_setaffinity(0, EVERYWHERE)


def files_of(path: Path) -> list[Path]:
    return sorted((path / "shards").glob("*/*.wav"))


@pytest.mark.usefixtures("busy")
def test_a_worker_follows_a_lone_reader_and_is_free_again(mount, speech):
    mounted = mount(speech)
    (worker,) = mounted.workers()
    (zygote,) = children(mounted.pid)
    wait_until(lambda: places_of(worker) == EVERYWHERE)  # it may have followed the command that mounts
    with running("-c", READER, *files_of(mounted.path), place=PLACE) as reader:
        wait_until(lambda: places_of(worker) == {PLACE})
        assert places_of(zygote) == places_of(mounted.pid) == EVERYWHERE, "processes run alone are forked from there"
        os.sched_setaffinity(reader.pid, {min(EVERYWHERE)})
        wait_until(lambda: places_of(worker) == {min(EVERYWHERE)})
        with running("-c", READER, *files_of(mounted.path)):
            wait_until(lambda: places_of(worker) == EVERYWHERE)
        wait_until(lambda: places_of(worker) == {min(EVERYWHERE)})
        reader.send_signal(signal.SIGSTOP)
        wait_until(lambda: places_of(worker) == EVERYWHERE)


@pytest.mark.usefixtures("busy")
def test_threads_that_a_following_worker_makes_are_free(tmp_path):
    """A thread inherits the processors of the one that makes it. The spike reads row 16 in a thread, and row 1 not."""
    with SpikeMount(tmp_path, 1, "own") as spike:
        (worker,) = workers_of(spike.process.pid)
        with running("-c", READER, spike.path / "data/0000001", place=PLACE):
            wait_until(lambda: places_of(worker) == {PLACE})
            assert os.listdir(f"/proc/{worker}/task") == [str(worker)]
            with running("-c", "import sys; open(sys.argv[1]).read()", spike.path / "data/0000016") as other:
                assert other.wait() == 0
            (thread,) = set(os.listdir(f"/proc/{worker}/task")) - {str(worker)}
            assert places_of(int(thread)) == EVERYWHERE
            wait_until(lambda: places_of(worker) == {PLACE})


@pytest.mark.usefixtures("busy")
def test_a_worker_that_follows_is_killed_and_its_reader_notices_nothing(mount, speech):
    mounted = mount(speech)
    command = [sys.executable, "-c", READER_OF_WHOLE_FILES, *files_of(mounted.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        try:
            os.sched_setaffinity(reader.pid, {PLACE})
            for _ in range(KILLS):
                (worker,) = wait_until(lambda: len(workers := mounted.workers()) == 1 and workers)
                wait_until(lambda worker=worker: places_of(worker) == {PLACE})
                os.kill(worker, signal.SIGKILL)
                wait_until(lambda worker=worker: mounted.workers() not in ([], [worker]))
            assert reader.poll() is None
            assert reader.stdin is not None
            reader.stdin.close()
            assert (reader.wait(60), reader.stderr.read()) == (0, b"")
        finally:
            reader.kill()
    assert (mounted.path / ".touchfs/errors").read_text() == ""


@pytest.mark.usefixtures("busy")
def test_two_workers_never_follow(mount, speech):
    mounted = mount(speech, "--workers", 2)
    first, second = mounted.workers()
    with running("-c", READER, *files_of(mounted.path), place=PLACE):
        served = json.loads((mounted.path / ".touchfs/info").read_bytes())["requests"]

        def later() -> bool:
            assert places_of(first) == places_of(second) == EVERYWHERE
            return bool(json.loads((mounted.path / ".touchfs/info").read_bytes())["requests"] > served + 2000)

        wait_until(later)


@pytest.mark.usefixtures("busy")
def test_a_mount_in_a_cpuset_of_one_processor_stays_there(tmp_path, speech):
    path = tmp_path / "mnt"
    taskset = ["taskset", "-c", str(min(EVERYWHERE)), INSTALLED, "mount", "-f", speech, path]
    with subprocess.Popen(taskset, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "is mounted" in process.stdout.readline()
            (worker,) = (worker for zygote in children(process.pid) for worker in children(zygote))
            with running("-c", READER, *files_of(path), place=PLACE):
                for _ in range(5):
                    assert all(file.read_bytes() for file in files_of(path))
                    assert places_of(worker) == {min(EVERYWHERE)}
        finally:
            process.terminate()


def follow(placement: Placement, reader: int, **opens: int) -> None:
    """Look after ten opens of a reader, and those of others."""
    for thread, count in {str(reader): 10, **opens}.items():
        for _ in range(count):
            placement.opened(int(thread))
    placement.look(may_follow=True)


@pytest.fixture
def reader() -> Iterator[int]:
    with running("-c", "import signal; signal.pause()", place=PLACE) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[36] == str(PLACE))
        yield process.pid


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("others", [{}, {"1": 1}])
def test_nine_tenths_of_the_opens(reader, others):
    placement = Placement()
    follow(placement, reader, **others)
    assert os.sched_getaffinity(0) == {PLACE}
    follow(placement, reader, **{"1": 2})
    assert os.sched_getaffinity(0) == EVERYWHERE


def no_opens(placement: Placement, reader: int) -> None:
    placement.look(may_follow=True)


def not_now(placement: Placement, reader: int) -> None:
    placement.opened(reader)
    placement.look(may_follow=False)


def unseen(placement: Placement, reader: int) -> None:
    follow(placement, 0)


def gone(placement: Placement, reader: int) -> None:
    os.kill(reader, signal.SIGKILL)
    os.waitid(os.P_PID, reader, os.WEXITED | os.WNOWAIT)
    follow(placement, 2**22 + 1)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("ends", [Placement.free, no_opens, not_now, unseen, gone])
def test_the_pattern_ends(reader, ends: Callable[..., None]):
    placement = Placement()
    follow(placement, reader)
    assert not placement.is_free
    ends(placement) if ends is Placement.free else ends(placement, reader)
    assert placement.is_free
    assert os.sched_getaffinity(0) == EVERYWHERE


@pytest.mark.usefixtures("anywhere")
def test_processors_that_were_changed_from_outside_are_respected(reader):
    placement = Placement()
    os.sched_setaffinity(0, {min(EVERYWHERE)})
    follow(placement, reader)
    assert os.sched_getaffinity(0) == {min(EVERYWHERE)}
    placement.free()
    assert os.sched_getaffinity(0) == {min(EVERYWHERE)}


@pytest.mark.usefixtures("anywhere")
def test_only_the_thread_that_looks_is_moved(reader):
    found: list[set[int]] = []

    def work() -> None:
        follow(Placement(), reader)
        found.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [{PLACE}]
    assert os.sched_getaffinity(0) == EVERYWHERE


def test_where_it_is_forbidden_it_is_tried_once():
    done = subprocess.run([sys.executable, "-c", FORBIDDEN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no longer follows") == (len(EVERYWHERE) > 1), done.stderr
