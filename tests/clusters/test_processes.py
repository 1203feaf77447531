"""What runs, what listens, and what is shown to whoever has the address of a scheduler, where tasks are done."""

import io
import logging
import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
import soundfile
from command import TOUCHFS
from dask_cluster import invoke
from distributed import Client
from processes import runs
from range_server import range_server
from s3_server import SECRET
from tars import write_tar
from waiting import wait_until

from touchfs.clusters.dask import cluster as connected
from touchfs.core import jobs
from touchfs.indexing import open_dataset

QUERY = "planted-signature"


@pytest.fixture
def dask(dask_of_any_size):
    """One worker is enough here."""
    dask_of_any_size.have(1)
    return dask_of_any_size


def family(pid):
    """A process and all below it, whichever of their threads started them."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found


def decoders(pid):
    """The processes below one that decode recordings, or read Lance datasets."""
    found = []
    for each in family(pid):
        with suppress(OSError):
            if re.search(rb"media\.decoder\.child|lance\.apart", Path(f"/proc/{each}/cmdline").read_bytes()):
                found.append(each)
    return found


def listening():
    """The inodes of all sockets that listen, and their addresses as the kernel has them."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found[fields[9]] = fields[1].partition(":")[0]
    return found


def sockets():
    """The inodes of the sockets of this process and those below it."""
    names = []
    for pid in family(os.getpid()):
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with suppress(OSError):
                names.append(os.readlink(descriptor))
    return {name[len("socket:[") : -1] for name in names if name.startswith("socket:[")}


def test_a_local_scheduler_listens_on_loopback_only():
    before = sockets()
    with connected("local", 1, [], []):
        mine = sockets() - before
        addresses = [address for inode, address in listening().items() if inode in mine]
    assert len(addresses) >= 3  # the scheduler, and a worker with its nanny
    assert set(addresses) == {"0100007F"}


def test_tasks_that_end_while_they_are_cancelled(dask, caplog, monkeypatch):
    """Tornado logs what goes wrong when futures are settled, and its logger has no parent."""
    monkeypatch.setattr(logging.getLogger("tornado.application"), "handlers", [caplog.handler])
    with connected(dask.address, 1, [], []) as executor:
        for _ in range(3):
            futures = [executor.submit(abs, number) for number in range(100)]
            assert futures[0].result(60) == 0
            assert all(future.cancel() or future.done() for future in futures)
        assert executor.submit(abs, -1).result(60) == 1
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_tasks_are_drawn_ahead_of_the_workers_that_there_are(dask_of_any_size):
    drawn = 0

    def tasks():
        nonlocal drawn
        for number in range(1000):
            drawn += 1
            yield number

    dask_of_any_size.have(1)
    with connected(dask_of_any_size.address, 1, [], []) as executor:
        results = jobs.run(abs, tasks(), executor)
        next(results)
        assert drawn == 4
        dask_of_any_size.start_worker()
        wait_until(lambda: executor.tasks_ahead() == 8)
        ahead = [drawn - done for done, _ in zip(range(2, 22), results, strict=False)]
        assert 4 < max(ahead) <= 8
        dask_of_any_size.kill(dask_of_any_size.processes[1])
        wait_until(lambda: executor.tasks_ahead() == 4)
        results.close()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    place = tmp_path_factory.mktemp("table")
    write_tar(place / "text.tar", {f"{number}.txt": b"text" for number in range(3)})
    subprocess.run([TOUCHFS, "convert", place / "text.tar", place / "table.lance", "--to", "lance"], check=True)
    return place / "table.lance"


@pytest.mark.parametrize("end", ["killed", pytest.param("stopped", marks=pytest.mark.variant)])
def test_decoders_end_with_their_worker(dask_of_any_size, table, tmp_path, end):
    """A worker of Dask must have no children by `multiprocessing`. These are others, and none outlives it."""
    mp3 = io.BytesIO()
    soundfile.write(mp3, np.sin(np.arange(16000) / 9), 16000, format="MP3")
    write_tar(tmp_path / "set/0.tar", {f"{number}.mp3": mp3.getvalue() for number in range(3)})
    dask_of_any_size.have(0)
    worker = dask_of_any_size.start_nanny()
    dask_of_any_size.wait()
    there = ("--dask", dask_of_any_size.address)
    assert invoke("index", table, *there).exit_code == 0
    assert decoders(worker.pid) == []
    assert invoke("index", tmp_path / "set", "--full", *there).exit_code == 0
    assert invoke("convert", tmp_path / "set", tmp_path / "out", "--to", "touchnet", *there).stdout.endswith(
        "3 samples\n"
    )
    found = decoders(worker.pid)
    assert found
    if end == "killed":
        dask_of_any_size.kill(worker)
    else:
        worker.terminate()
        worker.join()
    wait_until(lambda: not any(map(runs, found)))


def names(dask_scheduler):
    """All keys that there are and were, and what the scheduler says of them."""
    now = [(key, repr(task), str(task.prefix), str(task.group)) for key, task in dask_scheduler.tasks.items()]
    return repr((now, list(dask_scheduler.transition_log), dask_scheduler.get_events(), dask_scheduler.get_logs()))


def pages(address):
    """All pages of the dashboard that can be reached from its first ones."""
    seen, left = (
        {},
        ["info/main/workers.html", "info/main/logs.html", "json/identity.json", "json/index.html", "metrics"],
    )
    while left:
        page = left.pop()
        if page in seen:
            continue
        try:
            with urlopen(f"{address}/{page}") as answer:
                seen[page] = answer.read().decode()
        except HTTPError as error:
            seen[page] = error.read().decode()
        for link in re.findall(r'href="(?:\.\./)*([^":]+\.html)"', seen[page]):
            left.append(link if link.startswith(("info", "json")) else f"info/{link}")
    return seen


def wait_for_end(fifo: str, *_: str) -> None:
    with open(fifo):
        pass


def test_no_secret_is_in_keys_and_pages(dask, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    write_tar(tmp_path / "a.tar", {"a.txt": b"1"})
    os.mkfifo(tmp_path / "fifo")
    with range_server() as server:
        url = server.put("/a.tar", (tmp_path / "a.tar").read_bytes()) + f"?signature={QUERY}"
        with connected(dask.address, 1, [], []) as executor, Client(dask.address, set_as_default=False) as client:
            dashboard = f"http://127.0.0.1:{client.scheduler_info()['services']['dashboard']}"
            dataset = open_dataset(url, executor=executor)
            assert len(dataset.shards) == 1
            task = executor.submit(wait_for_end, str(tmp_path / "fifo"), QUERY, SECRET)
            wait_until(lambda: any(client.processing().values()))
            known, shown = client.run_on_scheduler(names), pages(dashboard)
            with open(tmp_path / "fifo", "w"):
                pass
            task.result(60)
        assert "touchfs" in known
        assert len(shown) > 5
        assert "touchfs" in "".join(shown.values())
        for secret in (QUERY, SECRET):
            assert secret not in known
            assert [page for page, text in shown.items() if secret in text] == []
            assert secret not in dask.log.read_text()
