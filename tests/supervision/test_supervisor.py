"""The real supervisor on a virtual clock; `scripted` is its zygote, its kernel and its systemd."""

import signal
from itertools import pairwise

import pytest
import trio
from scripted import KILLED
from touchfs_mount.mountpoints.mountpoint import EXIT_TIMEOUT
from touchfs_mount.numbers.cells import BUSY_SINCE, CELLS, REQUESTS
from touchfs_mount.requests.strikes import ON_LOOP
from touchfs_mount.supervision import stuck

from touchfs.core.errors import MountError

pytestmark = pytest.mark.trio


async def test_an_unmounted_session_ends_it(scene, nursery, autojump_clock):
    mounted = scene(workers=2)
    await mounted.begin(nursery)
    assert sorted(number for _, number in mounted.zygote.forked) == [0, 1]
    mounted.zygote.end_session()
    await mounted.ended.wait()
    assert mounted.status == 0
    assert mounted.zygote.commands[-1] == {"end": True}
    assert mounted.root.detached == []


async def test_killed_workers_are_replaced_for_ever(scene, nursery, autojump_clock):
    mounted = scene(workers=2)
    await mounted.begin(nursery)
    assert mounted.resent() == 1  # to see if the kernel can: the first workers succeed nobody
    for kill in range(300):
        mounted.zygote.end_worker(kill % 2, KILLED)
        await trio.sleep(0.1)
        assert mounted.resent() == 1  # the kernel queues what the dead one had not answered
    assert len(mounted.zygote.forked) == 302
    assert not mounted.ended.is_set()
    mounted.zygote.end_session()


@pytest.mark.parametrize(("interval", "status"), [(0.9, 1), (1.2, None)])
async def test_ten_failures_in_ten_seconds_end_it(scene, nursery, autojump_clock, interval, status):
    mounted = scene()
    await mounted.begin(nursery)
    for _ in range(10):
        assert not mounted.root.detached
        mounted.zygote.end_worker(0, 1)
        await trio.sleep(interval)
    if status is None:
        assert not mounted.root.detached
        mounted.zygote.end_session()
        return
    await mounted.ended.wait()
    assert mounted.status == status
    assert len(mounted.root.detached) == 1
    assert len(mounted.zygote.forked) == 10


async def test_forty_ends_a_second_are_followed_by_a_pause(scene, nursery, autojump_clock):
    mounted = scene()
    starts = mounted.zygote.forked
    await mounted.begin(nursery)
    for _ in range(40):
        mounted.zygote.end_worker(0, KILLED)
        while 0 not in mounted.zygote.workers:
            await trio.sleep(0.001)
    pauses = [late - early for (early, _), (late, _) in pairwise(starts[1:])]
    assert max(pauses[:-1]) < 0.1
    assert pauses[-1] >= 1
    mounted.zygote.end_session()


async def test_drained_workers_are_no_failures(scene, nursery, autojump_clock):
    mounted = scene()
    await mounted.begin(nursery)
    began = trio.current_time()
    for _ in range(100):
        mounted.zygote.end_worker(0, 3)
        await trio.sleep(0.001)
    assert len(mounted.zygote.forked) == 101
    assert trio.current_time() - began < 1
    mounted.zygote.end_session()


async def test_a_busy_worker_is_killed_when_it_is_stuck(scene, nursery, autojump_clock):
    mounted = scene(workers=2, stuck=10)
    await mounted.begin(nursery)
    since = trio.current_time()
    mounted.shared.counters[1][BUSY_SINCE] = int(since * 1e9)
    await trio.sleep(9.9)
    assert mounted.zygote.killed == []
    await trio.sleep(20)
    ((when, number),) = mounted.zygote.killed
    assert number == 1
    assert 10 < when - since <= 11
    assert mounted.shared.counters[1][BUSY_SINCE] == 0
    assert mounted.zygote.workers.keys() == {0, 1}
    mounted.zygote.end_session()


async def test_nobody_is_stuck_while_the_machine_stood_still():
    """As a virtual machine that is moved: what waited or ran then has its time afterwards."""
    now = 0
    watched = stuck.Watched(memoryview(bytearray(8 * CELLS)).cast("q"), memoryview(bytes(8)).cast("q"))
    watch = stuck.StuckWatch({0: watched}, None, 10, lambda: now)
    watched.counters[BUSY_SINCE] = 1
    found = []
    for seconds in (4, 60, 64, 68, 71):
        now = seconds * 10**9
        found.append(sorted(watch.find({0: 1})))
    assert found == [[], [], [], [], [0]]


@pytest.mark.parametrize(("runs", "is_stopped", "kills"), [(True, True, 1), (True, False, 0), (False, True, 0)])
async def test_a_worker_that_is_stopped_in_a_request(
    scene, nursery, autojump_clock, monkeypatch, caplog, runs, is_stopped, kills
):
    """It may hold the lock of a store that others use. One that runs nothing may stay stopped."""
    mounted = scene(workers=2)
    await mounted.begin(nursery)
    since = trio.current_time()
    stopped = {mounted.zygote.workers[1]} if is_stopped else set()
    monkeypatch.setattr(stuck, "is_suspended", stopped.__contains__)
    mounted.shared.strikes.running(1)[ON_LOOP] = 7 * runs
    await trio.sleep(0.9)
    assert mounted.zygote.killed == []
    await trio.sleep(1.1)
    assert [number for _, number in mounted.zygote.killed] == [1] * kills
    assert [text.split(") ")[1] for text in caplog.messages if "killing" in text] == kills * [
        "was stopped in the middle of a request: killing it"
    ]
    assert trio.current_time() - since <= 2
    assert not mounted.shared.strikes.has(7), "it is not to blame"
    mounted.zygote.end_session()


async def test_a_killed_worker_that_does_not_end_is_named_once(scene, nursery, autojump_clock, caplog):
    mounted = scene(workers=2, stuck=2)
    mounted.zygote.keeps_killed = True
    await mounted.begin(nursery)
    mounted.shared.counters[1][BUSY_SINCE] = int(trio.current_time() * 1e9)
    await trio.sleep(20)
    assert len(mounted.zygote.killed) > 10
    mounted.zygote.end_worker(1, KILLED)
    mounted.zygote.end_worker(0, KILLED)
    await trio.sleep(1)
    told = [record.getMessage() for record in caplog.records]
    assert [text.endswith("killing it") for text in told].count(True) == 1
    ours, others = [text for text in told if "starting another" in text]
    assert ours.startswith("worker 1 ")
    assert ours.endswith("ended with status -9: starting another")
    assert others.startswith("worker 0 ")
    assert others.endswith("ended with status -9: starting another")
    mounted.zygote.end_session()


async def test_idle_workers_are_killed_when_requests_are_not_taken(scene, nursery, autojump_clock):
    mounted = scene(stuck=4)
    await mounted.begin(nursery)
    await trio.sleep(100)
    assert mounted.zygote.killed == []  # nothing waits
    mounted.kernel.send(b"a request")
    for _ in range(10):
        await trio.sleep(2)
        mounted.shared.counters[0][REQUESTS] += 1  # others are taken
    await trio.sleep(6)
    assert len(mounted.zygote.killed) == 1  # its successor has as long to take one
    mounted.fuse.recv(100)
    mounted.zygote.end_session()


async def test_a_worker_that_never_comes_up_is_an_error(scene, nursery, autojump_clock):
    mounted = scene()
    mounted.zygote.on_fork = lambda number: False
    mounted.root.seconds = 1e9
    with pytest.raises(BaseExceptionGroup) as caught:
        await mounted.run()
    (error,) = caught.value.exceptions
    assert isinstance(error, MountError)
    assert str(error) == "/mnt/scripted: did not answer within 60 s"
    assert error.exit_status == EXIT_TIMEOUT
    assert trio.current_time() < 70


async def test_a_zygote_that_hangs_ends_it(scene, nursery, autojump_clock, caplog):
    mounted = scene(workers=2)
    await mounted.begin(nursery)
    mounted.zygote.on_fork = lambda number: False
    mounted.zygote.end_worker(0, KILLED)
    began = trio.current_time()
    await mounted.ended.wait()
    assert mounted.status == 1
    assert 60 <= trio.current_time() - began < 70
    assert [number for _, number in mounted.zygote.killed] == [1]
    assert "the zygote has not started a worker in 60 s" in caplog.text


async def test_a_zygote_that_dies_ends_it(scene, nursery, autojump_clock, caplog):
    mounted = scene(workers=2)
    await mounted.begin(nursery)
    mounted.zygote.die()
    await mounted.ended.wait()
    assert mounted.status == 1
    assert sorted(number for _, number in mounted.zygote.killed) == [0, 1]
    assert "the zygote is gone" in caplog.text


async def test_a_signal_unmounts(scene, nursery, autojump_clock):
    mounted = scene()
    await mounted.begin(nursery)
    signal.raise_signal(signal.SIGTERM)
    await mounted.ended.wait()
    assert mounted.status == 0
    assert len(mounted.root.detached) == 1
    assert mounted.zygote.killed == []


async def test_a_busy_mount_is_aborted_after_the_grace(scene, nursery, autojump_clock):
    mounted = scene()
    mounted.root.is_busy = True
    await mounted.begin(nursery)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    await mounted.ended.wait()
    assert mounted.status == 0
    ((when, _),) = mounted.zygote.killed
    assert when - mounted.root.detached[0] == pytest.approx(5)
    assert len(mounted.root.detached) == 1


async def test_a_second_interrupt_aborts_at_once(scene, nursery, autojump_clock):
    mounted = scene()
    mounted.root.is_busy = True
    await mounted.begin(nursery)
    signal.raise_signal(signal.SIGINT)
    await trio.sleep(1)
    assert mounted.zygote.killed == []
    signal.raise_signal(signal.SIGINT)
    await mounted.ended.wait()
    ((when, _),) = mounted.zygote.killed
    assert when - mounted.root.detached[0] == pytest.approx(1, abs=0.1)


async def test_sighup_reloads(scene, nursery, autojump_clock):
    mounted = scene()
    await mounted.begin(nursery)
    signal.raise_signal(signal.SIGHUP)
    await trio.sleep(1)
    mounted.zygote.end_worker(0, 3)
    await trio.sleep(1)
    assert [command for command in mounted.zygote.commands if "fork" not in command] == [
        {"reload": True},
        {"invalidate": True},
    ]
    info = mounted.shared.reloads.info()
    assert (info["generation"], info["reloads_ended"], info["reload_error"]) == (2, 1, None)
    mounted.zygote.end_session()


async def test_systemd_is_notified(scene, nursery, autojump_clock):
    mounted = scene()
    mounted.root.seconds = 3
    await mounted.begin(nursery)
    assert mounted.messages() == []
    await trio.sleep(3)
    assert mounted.messages() == ["READY=1\nSTATUS=3 shards"]
    mounted.zygote.results["reload"] = "no\nsuch dataset"
    signal.raise_signal(signal.SIGHUP)
    await trio.sleep(1)
    begun, ended = mounted.messages()
    assert begun.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert ended == "READY=1\nSTATUS=not reloaded: no\\nsuch dataset"
    mounted.root.is_busy = True
    signal.raise_signal(signal.SIGTERM)
    await mounted.ended.wait()
    assert mounted.messages() == ["STOPPING=1"]


async def test_the_watchdog_is_fed_only_when_a_worker_answers(scene, nursery, autojump_clock):
    mounted = scene(watchdog=30)
    await mounted.begin(nursery)
    await trio.sleep(60)
    fed = [message for message in mounted.messages() if message == "WATCHDOG=1"]
    assert len(fed) == 5  # at 0, 15, 30, 45 and 60 s
    mounted.root.seconds = 200
    await trio.sleep(20)
    mounted.messages()
    await trio.sleep(150)
    assert mounted.messages() == []
    mounted.root.seconds = 0
    await trio.sleep(60)
    assert "WATCHDOG=1" in mounted.messages()
    mounted.zygote.end_session()


async def test_no_watchdog_is_fed_that_nobody_asked_for(scene, nursery, autojump_clock):
    mounted = scene()
    await mounted.begin(nursery)
    await trio.sleep(600)
    assert mounted.messages() == ["READY=1\nSTATUS=3 shards"]
    mounted.zygote.end_session()
