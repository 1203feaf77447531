"""Bulk work on the workers of a real Dask scheduler."""

import os
import shutil
import subprocess
import threading
import time
from concurrent.futures import wait
from contextlib import contextmanager

import pytest
from command import TOUCHFS, in_one_process
from dask_cluster import cluster, invoke
from distributed import Client
from range_server import range_server
from s3_server import SECRET, s3_server, upload
from tars import write_tar
from waiting import wait_until

from touchfs.clusters import dask as dask_module
from touchfs.clusters import executor as executor_module
from touchfs.clusters import worker_checks
from touchfs.clusters.dask import cluster as connected
from touchfs.clusters.worker_checks import compare, marked, view_machine
from touchfs.core import jobs
from touchfs.core.errors import LostTaskError, LostWorkerError, UsageError
from touchfs.indexing import open_dataset
from touchfs.indexing.place import index_directory
from touchfs.verify.journal import Journal
from touchfs.view.plan import parse_plan


def run(*arguments, **how):
    command = [TOUCHFS, *map(str, in_one_process(*arguments))]
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


@pytest.fixture
def tars(tmp_path):
    for number in range(6):
        write_tar(tmp_path / "set" / f"{number}.tar", {f"s{n}.txt": b"%d" % n * 50 for n in range(20)})
    return tmp_path / "set"


def test_shards_are_indexed_there(dask, tars):
    done = run("index", tars, "--dask", dask.address)
    assert (done.returncode, done.stdout) == (0, f"{tars}: 6 shards, 120 samples; 6 indexed now\n"), done.stderr
    assert run("index", tars).stdout == f"{tars}: 6 shards, 120 samples; indexed already\n"
    done = invoke("convert", tars, tars.parent / "tar", "--to", "tar", "--dask", dask.address)
    assert done.exception is None, done
    assert invoke("verify", "--write", tars, "--dask", dask.address).stdout.startswith("120 checksums written")


def test_tls_by_the_configuration_of_dask(tars, tmp_path, forked):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=touchfs", "-days", "2"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    options = ("--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key)
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    mine = {f"{tls}CA_FILE": certificate, f"{tls}CLIENT__CERT": certificate, f"{tls}CLIENT__KEY": key}
    with cluster(tmp_path / "cluster", forked, workers=1, tls=("--protocol", "tls", *options)) as dask:
        assert dask.address.startswith("tls://")
        done = run("index", tars, "--dask", dask.address, env=os.environ | {name: str(mine[name]) for name in mine})
        assert (done.returncode, done.stdout) == (0, f"{tars}: 6 shards, 120 samples; 6 indexed now\n"), done.stderr


def test_a_scheduler_that_is_started_here(tars):
    done = run("verify", tars, "--dask", "local", "--jobs", 1)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith("6 shards, 120 files")


def test_a_task_that_fails_there_is_one_line(dask, tmp_path):
    (tmp_path / "l.jsonl").write_text('{"wav": "no.wav"}\n{"wav": "nor.wav"}\n')
    words = ["pack", "touchnet", "l.jsonl", "out", "--num-utt-per-shard", 1, "--dask", dask.address]
    done = run(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert ".wav: no such file; fix it and pack again" in done.stderr


def test_data_of_a_store(dask, tars, monkeypatch, tmp_path):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with s3_server(monkeypatch) as client:
        upload(client, tars, "data/set")
        done = invoke("index", "s3://data/set", "--dask", dask.address)
        assert done.stdout == "s3://data/set: 6 shards, 120 samples; 6 indexed now\n", done
        assert SECRET not in dask.log.read_text()


def test_a_signature_is_in_no_log(dask, tars):
    with range_server() as server:
        url = server.put("/a.tar", (tars / "0.tar").read_bytes()) + "?signature=planted"
        assert invoke("index", url, "--dask", dask.address).exception is None
        server.put("/a.tar", b"", '"2"')
        assert invoke("verify", url, "--dask", dask.address).return_value == 1
    assert "planted" not in dask.log.read_text()


@pytest.fixture(scope="module")
def blind(tmp_path_factory, forked):
    """A cluster in a directory with data. Its worker sees no file of `set`, and others of the same names at the paths
    of a shard of `touch` and of `a.jsonl`."""
    place = tmp_path_factory.mktemp("blind")
    for number in range(2):
        write_tar(place / "set" / f"{number}.tar", {f"s{n}.txt": b"%d" % n * 50 for n in range(20)})
    run("convert", place / "set", place / "touch", "--to", "touchnet", "--datatypes", "metainfo")
    (place / "lists").mkdir()
    (place / "lists/data.list").write_text((place / "touch/data.list").read_text())
    (place / "a.jsonl").write_text("{}\n")
    write_tar(place / "a.tar", {"a.wav": b"1", "a.json": b"{}"})
    (place / "other").write_bytes(b"other")
    hide = f"""
    mount -t tmpfs none {place}/set
    mount --bind {place}/other {place}/touch/000000000/metainfo.bin
    mount --bind {place}/other {place}/a.jsonl
    """
    with cluster(place, forked, workers=1, machine=hide) as made:
        yield made


def test_workers_that_see_other_data_are_refused(blind):
    done = run("index", blind.place / "set", "--dask", blind.address)
    assert done.returncode == 2
    assert f"sees other data at {blind.place}/set: 0 names" in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_workers_answer(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    with marked([str(tmp_path)]) as markers:
        here = view_machine([str(tmp_path / "file")], markers)
        assert compare(here, here) == ""
        assert "has touchfs 0, and here it is" in compare(here, here._replace(version="0"))
        (tmp_path / "file").write_bytes(b"22")
        assert "sees other data" in compare(here, view_machine([str(tmp_path / "file")], markers))
    assert f"does not see {tmp_path}, which is written" in compare(here, here._replace(markers=((markers[0], False),)))
    assert compare(here, ImportError("no")) == "has no touchfs: install it there"
    assert compare(here, ValueError("no")) == "does not answer: no"


def test_sizes_and_etags_in_a_directory_are_compared(tmp_path, monkeypatch):
    place = tmp_path / "set"
    write_tar(place / "0.tar", {"a.txt": b"1"})
    here = view_machine([str(place)], [])
    (place / "0.tar").write_bytes(b"other")
    assert f"sees other data at {place}: 1 names" in compare(here, view_machine([str(place)], []))
    with s3_server(monkeypatch) as client:
        client.pipe("data/set/0.tar", b"one")
        here = view_machine(["s3://data/set"], [])
        assert compare(here, view_machine(["s3://data/set"], [])) == ""
        client.pipe("data/set/0.tar", b"two")
        assert "sees other data at s3://data/set" in compare(here, view_machine(["s3://data/set"], []))


def test_so_many_files_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_checks, "FILES_MAX", 3)
    for place in ("one", "two"):
        for number in range(2):
            write_tar(tmp_path / place / f"{number}.tar", {"a.txt": b"1"})
    paths = [str(tmp_path / place) for place in ("one", "two")]
    here = view_machine([*paths, str(tmp_path / "two/1.tar")], [])
    assert [path for path, _ in here.data] == paths
    (tmp_path / "two/1.tar").write_bytes(b"other")
    assert compare(here, view_machine(paths, [])) == ""
    (tmp_path / "two/0.tar").write_bytes(b"other")
    assert "sees other data at" in compare(here, view_machine(paths, []))


def check_refusal(command, *words):
    error = invoke(*command).exception
    assert isinstance(error, UsageError), error
    for each in words:
        assert each in str(error)


def test_shards_of_a_list_are_compared(blind):
    """They may be anywhere, so the directory of the list says nothing."""
    command = ["verify", blind.place / "lists/data.list", "--dask", blind.address]
    check_refusal(command, f"sees other data at {blind.place}/touch/000000000: 2 names")


def test_for_indexes_of_other_tools_workers_are_asked_too(blind, monkeypatch):
    monkeypatch.chdir(blind.place)
    for command in (["jsonl", "a.jsonl"], ["pack", "a.tar", "a.jsonl", "-o", "x.idxpack"], ["--check", "a.jsonl"]):
        check_refusal(["index", *command, "--dask", blind.address], f"sees other data at {blind.place}/a.jsonl: 5 byte")
    done = invoke("index", "tar", "a.tar", "--dask", blind.address)
    assert (done.exception, done.stdout) == (None, f"{blind.place}/a.tar.idx: 1 sample; indexed now\n"), done
    assert not (blind.place / "a.jsonl.idx").exists()
    assert not (blind.place / "x.idxpack").exists()


def test_nobody_answers(tars, monkeypatch, capfd):
    """Neither the client nor its threads say anything, and they end."""
    monkeypatch.setattr(dask_module, "_CONNECT_SECONDS", 0.5)
    before = set(threading.enumerate())
    error = invoke("index", tars, "--dask", "tcp://127.0.0.1:1").exception
    assert isinstance(error, LostWorkerError), error
    assert str(error).startswith("tcp://127.0.0.1:1: no Dask scheduler answers there: ")
    assert {thread.name for thread in set(threading.enumerate()) - before if "IO loop" in thread.name} == set()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("address", ["bogus", "", "http://127.0.0.1:8786", "tcp://127.0.0.1", "tcp://127.0.0.1:99999"])
def test_what_is_no_address_is_refused(address):
    told = f"{address}: is no address" if address else "the address of the Dask scheduler is empty"
    with pytest.raises(UsageError, match=f"^{told}"), connected(address, 1, [], []):
        raise AssertionError("nobody is there")


def test_tls_without_certificates():
    told = r"^tls://127.0.0.1:1: tls:// needs certificates: name them in Dask's configuration \(docs/clusters.md\)$"
    with pytest.raises(UsageError, match=told), connected("tls://127.0.0.1:1", 1, [], []):
        raise AssertionError("nobody is there")


def test_errors_of_tasks_are_those_of_this_process(dask):
    with connected(dask.address, 1, [], []) as executor, pytest.raises(UsageError, match="max"):
        list(jobs.run(parse_plan, ["max=never"] * 3, executor))


def test_settings_reach_the_workers(dask, monkeypatch):
    monkeypatch.setenv("TOUCHFS_TRUST", "4711")
    with connected(dask.address, 1, [], []) as executor:
        assert set(jobs.run(os.getenv, ["TOUCHFS_TRUST"] * 4, executor)) == {"4711"}
    monkeypatch.delenv("TOUCHFS_TRUST")
    with connected(dask.address, 1, [], []) as executor:
        assert set(jobs.run(os.getenv, ["TOUCHFS_TRUST"] * 4, executor)) == {None}


def test_settings_reach_the_questions_too(dask, monkeypatch):
    monkeypatch.setenv("TOUCHFS_TRUST", "4711")
    with connected(dask.address, 1, [], []) as executor:
        assert set(executor.run_on_all(os.getenv, "TOUCHFS_TRUST").values()) == {"4711"}


@pytest.mark.parametrize("rounds", [4, pytest.param(20, marks=pytest.mark.variant)])
def test_cancelled_tasks_end_for_all_who_wait(dask, rounds):
    """While the client gives others their results in a thread of its own."""
    with connected(dask.address, 1, [], []) as executor:
        for _ in range(rounds):
            futures = [executor.submit(pow, number, 2) for number in range(50)]
            cancelled = [future.cancel() for future in futures]
            _, others = wait(futures, timeout=60)
            assert not others
            assert [future.cancelled() for future in futures] == cancelled
        assert executor.submit(pow, 3, 2).result() == 9


# -- whose workers end


def write_shards(place, files):
    """24 shards, so that a worker is killed when some are done and others are not."""
    first = write_tar(place / "00.tar", {f"s{n}.bin": os.urandom(100) for n in range(files)})
    for number in range(1, 24):
        shutil.copy(first, place / f"{number:02}.tar")
    return place


def verified_while_a_worker_is_killed(source, dask):
    """What `touchfs verify` of 24 shards prints."""
    journal = Journal(index_directory(), open_dataset(source))
    command = [TOUCHFS, "verify", source, "--dask", dask.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as verifying:
        wait_until(lambda: len(journal.verdicts()) >= 2 or verifying.poll() is not None)
        dask.kill(dask.processes[1])
        told, complaints = verifying.communicate(timeout=120)
    assert (verifying.returncode, complaints) == (0, "")
    return told


def test_a_killed_worker_costs_only_its_shards(dask, tmp_path):
    told = verified_while_a_worker_is_killed(str(write_shards(tmp_path / "set", 400)), dask)
    assert told == "24 shards, 9600 files, 960,000 bytes read, 0 with a checksum: no problem\n"


@pytest.mark.variant
def test_a_killed_worker_costs_only_its_shards_of_a_store(dask, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with s3_server(monkeypatch) as client:
        upload(client, write_shards(tmp_path / "set", 200), "data/set")
        told = verified_while_a_worker_is_killed("s3://data/set", dask)
    assert told == "24 shards, 4800 files, 480,000 bytes read, 0 with a checksum: no problem\n"


def end_if_three(number: int) -> int:
    if number == 3:
        os._exit(1)
    return number * number


@contextmanager
def no_failure_is_allowed(dask):
    def allow(count, dask_scheduler):
        dask_scheduler.allowed_failures, before = count, dask_scheduler.allowed_failures
        return before

    with Client(dask.address, set_as_default=False) as client:
        before = client.run_on_scheduler(allow, 0)
        yield
        client.run_on_scheduler(allow, before)


def test_a_task_that_kills_its_workers_is_lost_alone(dask):
    done = []
    told = "of the tasks were lost, the others are done: several workers died"
    with (
        no_failure_is_allowed(dask),
        connected(dask.address, 1, [], []) as executor,
        pytest.raises(LostTaskError, match=told),
    ):
        list(jobs.run(end_if_three, range(8), executor, done=done.append))
    assert 9 not in done
    assert len(done) >= 6  # the next task of the worker may count as lost with it: here no failure is allowed


def test_a_scheduler_without_workers_is_said_once(dask_of_any_size, caplog, monkeypatch):
    monkeypatch.setattr(executor_module, "IDLE_SECONDS", 0.2)
    dask_of_any_size.have(1)

    def told():
        return [record.getMessage() for record in caplog.records if record.name.startswith("touchfs")]

    def start_when_told():
        wait_until(told)
        dask_of_any_size.start_worker()

    with connected(dask_of_any_size.address, 1, [], []) as executor:
        results = jobs.run(time.sleep, [0] * 20, executor)
        next(results)
        dask_of_any_size.kill(dask_of_any_size.processes[1])
        starter = threading.Thread(target=start_when_told)
        starter.start()
        try:
            assert len(list(results)) == 19
        finally:
            starter.join()  # or it would start a worker when the scheduler has gone
    assert told() == [
        f"no workers: waiting for one to join {dask_of_any_size.address}",
        f"a worker has joined {dask_of_any_size.address}: going on",
    ]


def test_a_scheduler_that_goes_away_is_an_error_of_ours(tmp_path, monkeypatch, forked):
    monkeypatch.setattr(executor_module, "AWAY_SECONDS", 0.5)
    with cluster(tmp_path, forked, workers=1) as dask, connected(dask.address, 1, [], []) as executor:
        results = jobs.run(time.sleep, [0, 600, 600], executor)
        next(results)
        dask.kill(dask.processes[0])
        with pytest.raises(LostWorkerError):
            list(results)


def test_a_scheduler_without_workers_is_refused(dask_of_any_size):
    dask_of_any_size.have(0)
    told = "the Dask scheduler has no workers: start some with `dask worker`$"
    with pytest.raises(UsageError, match=told), connected(dask_of_any_size.address, 1, [], []):
        raise AssertionError("nobody is there")
