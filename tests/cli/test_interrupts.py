"""Commands that work in several processes, ended by Ctrl-C, by a batch system, or by a worker that dies meanwhile."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from command import INSTALLED
from processes import children
from speech import SPEECH

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def temporary(monkeypatch):
    """The directory of temporary files. Its path is short, as that of a socket in it has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as place:
        monkeypatch.setenv("TMPDIR", place)
        yield Path(place)


@contextmanager
def packing(shards, *options):
    """A run of `pack` in two processes, in a session of its own, that takes seconds."""
    shutil.copy(SPEECH / "wav" / "01.wav", "a.wav")
    Path("l.jsonl").write_text("".join(json.dumps({"key": f"{i}", "wav": "a.wav"}) + "\n" for i in range(16_000)))
    with subprocess.Popen(
        [
            INSTALLED,
            "pack",
            "touch",
            "l.jsonl",
            "out",
            "--num-utt-per-shard",
            f"{16_000 // shards}",
            "--jobs",
            "2",
            *options,
        ],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def session(number):
    """The processes of a session that still run."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, its_session = stat.read_text().rpartition(")")[2].split()[:4]
            if its_session == str(number) and state != "Z":
                yield stat.parent.name


def at_work(here):
    """True if both workers write a shard."""
    return len(list(here.glob("out/.touchfs-tmp-*/audio.bin"))) >= 2


def wait_until(process, condition):
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def check_end(process, status, here):
    """It ends quietly with this status, and leaves no process and no temporary file."""
    out, told = process.communicate(timeout=60)
    assert (process.returncode, out, told.strip()) == (status, b"", b"")
    deadline = time.monotonic() + 20
    while list(session(process.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert not list(here.rglob("data.list")) + list(here.rglob(".touchfs-tmp-*"))
    assert os.listdir(os.environ["TMPDIR"]) == []


@pytest.mark.parametrize("number", STATUS)
def test_a_signal_leaves_whole_shards_to_go_on_with(here, temporary, number):
    with packing(2) as process:
        wait_until(process, lambda: at_work(here))
        os.killpg(process.pid, number)
        check_end(process, STATUS[number], here)
    assert {len(list(shard.iterdir())) for shard in here.glob("out/0*")} <= {4}


@pytest.mark.parametrize("number", STATUS)
@pytest.mark.parametrize("running", [3, 4, 5])
def test_a_signal_while_the_processes_start(here, temporary, number, running):
    """The processes of the session are the command, what tracks its semaphores, the fork server and two workers."""
    with packing(64) as process:
        wait_until(process, lambda: len(list(session(process.pid))) >= running)
        os.killpg(process.pid, number)
        check_end(process, STATUS[number], here)


def test_a_batch_system_that_sends_several(here, temporary):
    with packing(64) as process:
        wait_until(process, lambda: at_work(here))
        for _ in range(3):
            os.killpg(process.pid, signal.SIGTERM)
        check_end(process, 143, here)


def test_a_worker_that_dies_while_the_job_stops(here, temporary):
    with packing(64) as process:
        wait_until(process, lambda: at_work(here))
        workers = [worker for child in children(process.pid) for worker in children(child)]
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.01)  # so that tasks have been cancelled
        os.kill(workers[0], signal.SIGKILL)
        out, told = process.communicate(timeout=60)
        assert (process.returncode, out, told.strip()) == (130, b"", b"")


def test_a_killed_one_leaves_no_process_behind(here):
    with packing(2) as process:
        wait_until(process, lambda: at_work(here))
        process.kill()
        process.wait()
        while list(session(process.pid)):
            time.sleep(0.02)


@pytest.mark.parametrize("number", STATUS)
@pytest.mark.parametrize("working", [False, True])
def test_a_dask_scheduler_of_the_command(here, temporary, number, working):
    with packing(64, "--dask", "local") as process:
        started = lambda: len(list(session(process.pid))) >= 3  # noqa: E731
        wait_until(process, (lambda: at_work(here)) if working else started)
        os.killpg(process.pid, number)
        check_end(process, STATUS[number], here)
