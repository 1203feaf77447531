"""The counters in shared memory: exact, never going back, and complete whoever is killed."""

import errno
import os
import random
import signal

from hypothesis import given
from hypothesis import strategies as st
from touchfs_mount.numbers.slots import BUCKET_SHIFT, ERRNOS, OPERATIONS, MountNumbers, SupervisorCount

from touchfs.source import counts

READ = OPERATIONS.index("read")


@given(st.lists(st.tuples(st.sampled_from(range(len(OPERATIONS))), st.integers(1, 2**50)), max_size=30))
def test_each_request_is_in_the_bucket_that_holds_its_time(requests):
    numbers = MountNumbers(1)
    for operation, nanoseconds in requests:
        numbers.workers[0].record(operation, nanoseconds)
    totals = numbers.totals()
    for operation in range(len(OPERATIONS)):
        times = [nanoseconds for each, nanoseconds in requests if each == operation]
        buckets, total = totals.requests(operation)
        assert sum(buckets) == len(times)
        for place in range(len(buckets)):
            assert sum(buckets[: place + 1]) == sum(each <= 1 << BUCKET_SHIFT + place for each in times)
        assert total == sum(times)


def test_slots_are_summed_and_do_not_mix():
    numbers = MountNumbers(3)
    for worker, slot in enumerate(numbers.workers):
        slot.record(READ, 1000)
        slot.add_read(10**worker)
        slot.add_error(errno.EIO)
        slot.add_error(errno.EXDEV)
        slot.counts[counts.COUNTS.index("renderings")] += 2
    numbers.supervisor.add(SupervisorCount.RESTARTS)
    numbers.supervisor.add(SupervisorCount.STRIKES, 4)
    totals = numbers.totals()
    assert [sum(totals.requests(operation)[0]) for operation in range(len(OPERATIONS))] == [
        3 * (operation == READ) for operation in range(len(OPERATIONS))
    ]
    assert totals.requests(READ)[1] == 3000
    assert totals.read_bytes == 111
    assert dict(zip([*ERRNOS, None], totals.errors, strict=True)) == {
        **dict.fromkeys(ERRNOS, 0),
        errno.EIO: 3,
        None: 3,
    }
    assert totals.counts == {name: 6 * (name == "renderings") for name in counts.COUNTS}
    assert totals.supervisor(SupervisorCount.RESTARTS) == 1
    assert totals.supervisor(SupervisorCount.STRIKES) == 4


def test_nothing_that_killed_workers_counted_is_lost():
    """Each of them says how many requests it has counted; it may have been killed within the next one."""
    numbers, least, dice = MountNumbers(1), 0, random.Random(1)
    for _ in range(5):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            while True:
                numbers.workers[0].record(READ, 5000)
                numbers.workers[0].add_read(7)
                os.write(writing, b".")
        os.close(writing)
        before, reported, enough = least, 0, dice.randrange(1, 2000)
        while reported < enough:
            reported += len(os.read(reading, 1 << 16))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while piece := os.read(reading, 1 << 16):
            reported += len(piece)
        os.close(reading)
        buckets, total = numbers.totals().requests(READ)
        assert before + reported <= sum(buckets) <= before + reported + 1
        assert 0 <= total - 5000 * sum(buckets) <= 5000 * 5
        least = sum(buckets)
    assert least >= 5


def test_the_library_counts_where_it_is_asked_to():
    cells = [0] * len(counts.COUNTS)
    counts.share(cells)
    try:
        counts.count("iterator_steps")
        counts.count("window_hits", 3)
    finally:
        counts.share([0] * len(counts.COUNTS))
    assert dict(zip(counts.COUNTS, cells, strict=True)) == {
        **dict.fromkeys(counts.COUNTS, 0),
        "iterator_steps": 1,
        "window_hits": 3,
    }
