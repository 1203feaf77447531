"""How many messages the kernel sends. What it need not ask costs nobody anything."""

import errno
import itertools
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from mount_numbers import numbers_of
from mounts import Mount, is_waiting
from processes import runs
from recordings import make
from slow import Slow, slow
from tars import write_tar
from waiting import wait_until

FILES = {f"s{number:03}.txt": b"%d " % number * 5000 for number in range(300)}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    source = tmp_path_factory.mktemp("messages") / "shards"
    source.mkdir()
    write_tar(source / "a.tar", FILES)
    write_tar(source / "b.tar", FILES)
    return source


def cost(mounted: Mount, *acts: Callable[[], object]) -> int:
    """The messages of an act: the fewest of some that are alike, as any program may look at all mounts meanwhile."""

    def fewest(*acts: Callable[[], object]) -> int:
        costs = []
        for act in acts:
            before = mounted.info()["requests"]
            act()
            costs.append(mounted.info()["requests"] - before)
        return min(costs)

    asking = fewest(*[lambda: None] * 3)  # for their number
    return fewest(*acts) - asking


def read(path: Path) -> bytes:
    """Read as C programs do: Python's open() asks each time whether a file is a terminal."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)


def test_a_file_costs_a_message_or_two_and_none_when_it_was_read(mount, shards):
    mounted = mount(shards, "--control", "none")
    shards = (mounted.path / "shards/a", mounted.path / "shards/b")

    def cost_in_each(act: Callable[[Path], object], *names: str) -> int:
        return cost(mounted, *(lambda shard=shard: [act(shard / name) for name in names] for shard in shards))

    assert cost_in_each(read, "s000.txt") <= 5  # three directories, the name, the bytes
    assert cost_in_each(read, "s001.txt") == 2
    assert cost_in_each(read, "s001.txt") == 0
    cost_in_each(os.listdir, "")
    assert cost_in_each(os.stat, *FILES) == 0
    assert cost_in_each(read, "s002.txt") == 1
    assert cost_in_each(read, *FILES) == len(FILES) - 3
    assert cost_in_each(read, *FILES) == 0


def test_the_second_look_costs_next_to_nothing(mount, shards):
    mounted = mount(shards, "--control", "none")

    def second_cost(*command: object) -> int:
        look = partial(subprocess.run, command, stdout=subprocess.DEVNULL, check=True)
        look()
        return cost(mounted, look, look)

    assert second_cost("find", mounted.path) <= 1, "STATFS"
    assert second_cost("ls", "-l", mounted.path / "shards/a") <= 2
    assert second_cost("cat", *(mounted.path / "shards/a" / name for name in FILES)) == 0


def test_a_reload_costs_only_what_has_changed(mount, shards, tmp_path):
    source = tmp_path / "shards"
    source.mkdir()
    write_tar(source / "a.tar", FILES)
    mounted = mount(source)
    read_all = lambda: [read(mounted.path / "shards/a" / name) for name in FILES]  # noqa: E731
    list(os.walk(mounted.path))
    read_all()
    write_tar(source / "b.tar", {"new.txt": b"new"})
    os.kill(mounted.pid, signal.SIGHUP)
    wait_until(lambda: mounted.info()["generation"] == 2)
    wait_until(lambda: os.listdir(mounted.path / "shards") == ["a", "b"])
    assert (mounted.path / "shards/b/new.txt").read_bytes() == b"new"
    assert cost(mounted, read_all) < 10, "others may look at the mount"


def test_a_plan_that_is_named_is_listed(mount, speech):
    mounted = mount(speech)
    merged = mounted.path / "merged"
    assert os.listdir(merged) == []
    for plans in (["max=10"], ["max=10", "max=20"]):
        os.stat(merged / plans[-1])
        wait_until(lambda plans=plans: os.listdir(merged) == plans)


@pytest.mark.parametrize("direct", [False, True])
def test_bytes_are_those_of_the_file_however_they_are_read(mount, shards, direct):
    mounted = mount(shards)
    path = mounted.path / "shards/b/s100.txt"
    expected = FILES["s100.txt"]
    descriptor = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    try:
        buffer = mmap.mmap(-1, 1 << 15)
        assert os.preadv(descriptor, [buffer], 0) == min(len(expected), 1 << 15)
        assert buffer[: min(len(expected), 1 << 15)] == expected[: 1 << 15]
        if not direct:
            with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
                assert mapped[:] == expected
    finally:
        os.close(descriptor)


READER = """
import os, signal, sys
def handle(*_): raise SystemExit(7)
signal.signal(signal.SIGINT, handle)
print(flush=True)
if sys.argv[2] == "stat":
    os.stat(sys.argv[1])
elif sys.argv[2] == "direct":
    import mmap
    os.preadv(os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), [mmap.mmap(-1, 4096)], 0)
else:
    open(sys.argv[1], "rb").read()
"""


@pytest.fixture(scope="module")
def hanging(tmp_path_factory) -> Iterator[tuple[Slow, Callable[[str], Path]]]:
    """A mount of files that can be made to hang. What one asks it for each time is a file that nobody has read: a text,
    or the segment of an MP3 without a length in its headers, so that whoever asks for its size waits.
    """
    place = tmp_path_factory.mktemp("hanging")
    (place / "shards").mkdir()
    recording = make(place, "a.mp3", 48000, 2).read_bytes()
    segments = json.dumps({"segments": [{"start": 0.5, "end": 1.5, "text": "x"}]}).encode()
    members, numbers = {}, itertools.count()
    for number in range(8):
        members |= {f"r{number}.mp3": recording, f"r{number}.json": segments, f"t{number}.txt": bytes(1 << 20)}
    write_tar(place / "shards/x.tar", members)
    with slow(place / "shards", place / "slow") as files:
        mounted = Mount(place / "mnt", files.path)

        def unread(what: str) -> Path:
            number = next(numbers)
            path = f"segments/x/r{number}/0000.wav" if what == "stat" else f"shards/x/t{number}.txt"
            os.listdir((mounted.path / path).parent)
            return mounted.path / path

        yield files, unread
        mounted.end()


@pytest.mark.parametrize(
    ("what", "number"),
    [("stat", signal.SIGINT), ("stat", signal.SIGKILL), ("direct", signal.SIGINT), ("read", signal.SIGKILL)],
)
def test_a_signal_ends_who_waits(hanging, what, number):
    """A fatal one whatever it waits for, and one that is handled all but reads through the page cache."""
    files, unread = hanging
    command = [sys.executable, "-S", "-c", READER, unread(what), what]
    files.hang()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"\n"
            wait_until(lambda: is_waiting(reader.pid))
            reader.send_signal(number)
            assert reader.wait(60) in (7, -number)  # the files still hang
        finally:
            files.go_on()
            reader.kill()


GOES_ON = """
import os, signal, sys
handled = []
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGPROF, signal.SIGURG, signal.SIGCONT):
    signal.signal(number, lambda number, _: handled.append(number))
print(flush=True)
if sys.argv[2] == "stat":
    print(os.stat(sys.argv[1]).st_size)
else:
    import mmap
    print(os.preadv(os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), [mmap.mmap(-1, 4096)], 0))
print(len(handled))
"""


@pytest.mark.parametrize(
    ("what", "then"), [("stat", None), ("stat", signal.SIGINT), ("direct", None), ("direct", signal.SIGKILL)]
)
def test_a_program_that_a_signal_does_not_end_reads_on(hanging, what, then):
    """A kernel's file system gives no EINTR either: a profiler, a batch system and ^Z would break programs."""
    files, unread = hanging
    command = [sys.executable, "-S", "-c", GOES_ON, unread(what), what]
    files.hang()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        try:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"\n"
            wait_until(lambda: is_waiting(reader.pid))
            for number in ("USR1", "STOP", "CONT", "TERM", "ALRM", "PROF", "URG"):
                reader.send_signal(signal.Signals[f"SIG{number}"])
                time.sleep(0.15)  # longer than until one that ends it is noticed
                assert reader.poll() is None
            if then is not None:
                reader.send_signal(then)
                assert reader.wait(60)
        finally:
            files.go_on()
        if then is None:
            output, errors = reader.communicate(timeout=60)
            assert not errors
            size, handled = map(int, output.split())
            assert size > 44
            assert handled == 6


def test_what_would_change_anything_is_refused_also_where_the_mount_is_not_read_only(mount, shards):
    mounted = mount(shards)
    path = mounted.path / "shards/a/s000.txt"
    with pytest.raises(OSError) as refused:
        path.write_bytes(b"")
    assert refused.value.errno == errno.EROFS


# So many processes at once do what makes them wait. Each prints its number when it begins.
CROWD = """
import mmap, os, signal, sys
what, paths = sys.argv[1], sys.argv[2:]
def handle(*_): os._exit(7)
signal.signal(signal.SIGINT, signal.SIG_IGN)
for path in paths:
    if not os.fork():
        signal.signal(signal.SIGINT, handle)
        os.write(1, b"%d\\n" % os.getpid())
        os.close(1)
        if what == "stat":
            os.stat(path)
        else:
            os.preadv(os.open(path, os.O_RDONLY | (os.O_DIRECT if what == "direct" else 0)), [mmap.mmap(-1, 4096)], 0)
        os._exit(0)
os.close(1)
for _ in paths:
    os.wait()
"""


@pytest.mark.parametrize("what", ["stat", "direct", "read"])
@pytest.mark.parametrize("count", [20, pytest.param(3_400, marks=pytest.mark.soak)])
def test_those_who_no_longer_wait_cost_no_thread_and_get_no_stray_answer(mount, tmp_path, what, count):
    """10,000 at the soak size: those who look and who read directly are interrupted, others are killed."""
    crowd, members = 10, {"before.txt": b"here"}
    recording = make(tmp_path, "a.mp3", 48000, 2).read_bytes()
    segments = json.dumps({"segments": [{"start": 0.5, "end": 1.5, "text": "x"}]}).encode()
    for number in range(count):  # nobody waits twice for the same
        members[f"t{number}.txt"] = b"%d " % number * 1024
        if what == "stat":
            members |= {f"r{number}.mp3": recording, f"r{number}.json": segments}
    write_tar(tmp_path / "shards/x.tar", members)
    with slow(tmp_path / "shards", tmp_path / "slow") as files:
        mounted = mount(files.path)
        shown = mounted.path / "shards/x"
        os.listdir(shown)
        for first in range(0, count, crowd):
            assert read(shown / "before.txt") == b"here"
            numbers = range(first, first + crowd)
            paths = [
                mounted.path / f"segments/x/r{each}/0000.wav" if what == "stat" else shown / f"t{each}.txt"
                for each in numbers
            ]
            if what == "stat":
                for path in paths:
                    os.listdir(path.parent)
            files.hang()
            with subprocess.Popen(
                [sys.executable, "-c", CROWD, what, *paths], stdout=subprocess.PIPE, text=True
            ) as crowded:
                try:
                    assert crowded.stdout is not None
                    waiting = [int(line) for line in crowded.stdout]
                    wait_until(lambda waiting=waiting: all(map(is_waiting, waiting)))
                    for each in waiting:
                        os.kill(each, signal.SIGKILL if what == "read" else signal.SIGINT)
                    wait_until(lambda waiting=waiting: not any(map(runs, waiting)))
                finally:
                    files.go_on()
        wait_until(lambda: numbers_of(mounted)["touchfs_requests_in_flight",] == 1)  # that which asks
        assert all(read(shown / name) == data for name, data in members.items())
        assert mounted.info()["internal_errors"] == 0
