"""Commands that work in several processes, ended by Ctrl-C, by a batch system, or by a worker that dies meanwhile."""

import json
import os
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from command import INSTALLED
from processes import children
from speech import SPEECH
from waiting import wait_until

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def temporary(monkeypatch):
    """The directory of temporary files. Its path is short, as that of a socket in it has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as place:
        monkeypatch.setenv("TMPDIR", place)
        yield Path(place)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A list of samples that take half a minute to pack: no test is at work for so long."""
    path = tmp_path_factory.mktemp("samples") / "l.jsonl"
    wav = str(SPEECH / "wav" / "01.wav")
    path.write_text("".join(json.dumps({"key": f"{i}", "wav": wav}) + "\n" for i in range(80_000)))
    return path


@pytest.fixture
def packing(samples):
    """A run of `pack` in two processes, in a session of its own. A fifth of the samples are in so many shards."""

    @contextmanager
    def run(shards, *options):
        size = ("--num-utt-per-shard", f"{16_000 // shards}")
        with subprocess.Popen(
            [INSTALLED, "pack", "touchnet", samples, "out", *size, "--jobs", "2", *options],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    return run


def descendants(pid):
    """The processes that a process started, and those that these started. Any thread may have started one."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in file.read_text().split():
                yield child
                yield from descendants(child)


def session(number):
    """The processes of a session that still run."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, its_session = stat.read_bytes().rpartition(b")")[2].split()[:4]
            if its_session == b"%d" % number and state != b"Z":
                yield stat.parent.name


def written(here):
    """The shards that are being written."""
    return list(here.glob("out/.touchfs-tmp-*/audio.bin"))


def until(process, condition):
    """Wait for it while the process runs."""
    wait_until(lambda: condition() or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def until_at_work(process, here):
    until(process, lambda: len(written(here)) >= 2)


def check_end(process, status, here):
    """It ends quietly with this status, and leaves no process and no temporary file."""
    out, told = process.communicate(timeout=300)
    assert (process.returncode, out, told.strip()) == (status, b"", b"")
    wait_until(lambda: not list(session(process.pid)))
    assert not list(here.rglob("data.list")) + list(here.rglob(".touchfs-tmp-*"))
    assert os.listdir(os.environ["TMPDIR"]) == []


def test_a_signal_leaves_whole_shards_to_go_on_with(here, temporary, packing):
    with packing(32) as process:
        until_at_work(process, here)
        os.killpg(process.pid, signal.SIGINT)
        check_end(process, 130, here)
    assert {len(list(shard.iterdir())) for shard in here.glob("out/0*")} == {4}


@pytest.mark.parametrize(
    ("running", "number"),
    [
        (4, signal.SIGTERM),
        pytest.param(3, signal.SIGTERM, marks=pytest.mark.variant),
        pytest.param(5, signal.SIGINT, marks=pytest.mark.variant),
    ],
)
def test_a_signal_while_the_processes_start(here, temporary, packing, running, number):
    """The processes of the session are the command, what tracks its semaphores, the fork server and two workers."""
    with packing(64) as process:
        until(process, lambda: 1 + len(list(descendants(process.pid))) >= running)
        os.killpg(process.pid, number)
        check_end(process, STATUS[number], here)


def test_a_batch_system_that_sends_several(here, temporary, packing):
    with packing(64) as process:
        until_at_work(process, here)
        for _ in range(3):
            os.killpg(process.pid, signal.SIGTERM)
        check_end(process, 143, here)


def test_a_worker_that_dies_while_the_job_stops(here, temporary, packing):
    """The job waits for a worker that is slow. The other one has no more to do."""
    with packing(64) as process:
        until_at_work(process, here)
        workers = [worker for child in children(process.pid) for worker in children(child)]
        os.kill(workers[0], signal.SIGSTOP)
        os.kill(process.pid, signal.SIGINT)
        until(process, lambda: len(written(here)) <= 1)
        os.kill(workers[0], signal.SIGKILL)
        out, told = process.communicate(timeout=300)
        assert (process.returncode, out, told.strip()) == (130, b"", b"")


def test_a_killed_one_leaves_no_process_behind(here, packing):
    with packing(2) as process:
        until_at_work(process, here)
        process.kill()
        process.wait()
        wait_until(lambda: not list(session(process.pid)))


@pytest.mark.parametrize(
    ("number", "working"),
    [
        (signal.SIGINT, True),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.variant),
    ],
)
def test_a_dask_scheduler_of_the_command(here, temporary, packing, number, working):
    with packing(64, "--dask", "local") as process:
        if working:
            until_at_work(process, here)
        else:
            until(process, lambda: len(list(descendants(process.pid))) >= 2)
        os.killpg(process.pid, number)
        check_end(process, STATUS[number], here)
