"""Bulk work on the workers of a real Dask scheduler."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import wait

import pytest
from command import TOUCHFS
from dask_cluster import cluster
from range_server import range_server
from s3_server import SECRET, s3_server, upload
from tars import write_tar

from touchfs import jobs
from touchfs.clusters import executor as executor_module
from touchfs.clusters import worker_checks
from touchfs.clusters.dask import cluster as connected
from touchfs.clusters.worker_checks import compare, marked, view_machine
from touchfs.errors import LostTaskError, LostWorkerError, UsageError
from touchfs.indexing import open_dataset
from touchfs.indexing.place import index_directory
from touchfs.verify.journal import Journal
from touchfs.view.plan import parse_plan


def run(*arguments, **how):
    return subprocess.run([TOUCHFS, *map(str, arguments)], capture_output=True, text=True, check=False, **how)


@pytest.fixture
def tars(tmp_path):
    for number in range(6):
        write_tar(tmp_path / "set" / f"{number}.tar", {f"s{n}.txt": b"%d" % n * 50 for n in range(20)})
    return tmp_path / "set"


def test_shards_are_indexed_there(dask, tars):
    done = run("index", tars, "--dask", dask.address)
    assert (done.returncode, done.stdout) == (0, f"{tars}: 6 shards, 120 samples; 6 indexed now\n"), done.stderr
    assert run("index", tars).stdout == f"{tars}: 6 shards, 120 samples; indexed already\n"
    done = run("convert", tars, tars.parent / "tar", "--to", "tar", "--dask", dask.address)
    assert done.returncode == 0, done.stderr
    assert run("checksum", tars, "--dask", dask.address).stdout.startswith("120 checksums written")


def test_tls_by_the_configuration_of_dask(tars, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=touchfs", "-days", "2"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    options = ("--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key)
    tls = "DASK_DISTRIBUTED__COMM__TLS__"
    mine = {f"{tls}CA_FILE": certificate, f"{tls}CLIENT__CERT": certificate, f"{tls}CLIENT__KEY": key}
    with cluster(tmp_path / "cluster", tls=("--protocol", "tls", *options)) as dask:
        assert dask.address.startswith("tls://")
        done = run("index", tars, "--dask", dask.address, env=os.environ | {name: str(mine[name]) for name in mine})
        assert (done.returncode, done.stdout) == (0, f"{tars}: 6 shards, 120 samples; 6 indexed now\n"), done.stderr


def test_a_scheduler_that_is_started_here(tars):
    done = run("verify", tars, "--dask", "local", "--jobs", 2)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith("6 shards, 120 files")


def test_a_task_that_fails_there_is_one_line(tmp_path):
    (tmp_path / "l.jsonl").write_text('{"wav": "no.wav"}\n{"wav": "nor.wav"}\n')
    words = ["pack", "touch", "l.jsonl", "out", "--num-utt-per-shard", 1, "--dask", "local", "--jobs", 2]
    done = run(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert ".wav: no such file; mend it and pack again" in done.stderr


def verified_while_a_worker_is_killed(source, dask):
    """What `touchfs verify` of 24 shards prints."""
    journal = Journal(index_directory(), open_dataset(source))
    command = [TOUCHFS, "verify", source, "--dask", dask.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as verifying:
        while len(journal.verdicts()) < 2:
            assert verifying.poll() is None, verifying.communicate()
            time.sleep(0.01)
        dask.kill(dask.processes[1])
        told, complaints = verifying.communicate(timeout=120)
    assert (verifying.returncode, complaints) == (0, "")
    return told


def test_a_killed_worker_costs_only_its_shards(tmp_path):
    for number in range(24):
        write_tar(tmp_path / "set" / f"{number:02}.tar", {f"s{n}.bin": os.urandom(100) for n in range(2000)})
    with cluster(tmp_path / "cluster") as dask:
        told = verified_while_a_worker_is_killed(str(tmp_path / "set"), dask)
    assert told == "24 shards, 48000 files, 4,800,000 bytes read, 0 with a checksum: no problem\n"


def of_the_store():
    """Credentials, which Dask does not send to its workers."""
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def test_a_killed_worker_costs_only_its_shards_of_a_store(tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    for number in range(24):
        write_tar(tmp_path / "set" / f"{number:02}.tar", {f"s{n}.bin": os.urandom(100) for n in range(200)})
    with s3_server(monkeypatch) as client:
        upload(client, tmp_path / "set", "data/set")
        with cluster(tmp_path / "cluster", **of_the_store()) as dask:
            told = verified_while_a_worker_is_killed("s3://data/set", dask)
    assert told == "24 shards, 4800 files, 480,000 bytes read, 0 with a checksum: no problem\n"


def test_data_of_a_store(dask, tars, monkeypatch, tmp_path):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    with s3_server(monkeypatch) as client:
        upload(client, tars, "data/set")
        with cluster(tmp_path / "cluster", **of_the_store()) as others:
            done = run("index", "s3://data/set", "--dask", others.address)
            assert (done.returncode, done.stdout) == (0, "s3://data/set: 6 shards, 120 samples; 6 indexed now\n"), done
            assert SECRET not in others.log.read_text()


def test_a_signature_is_in_no_log(dask, tars):
    with range_server() as server:
        url = server.put("/a.tar", (tars / "0.tar").read_bytes()) + "?signature=planted"
        done = run("index", url, "--dask", dask.address)
        assert done.returncode == 0, done.stderr
        server.put("/a.tar", b"", '"2"')
        assert run("verify", url, "--dask", dask.address).returncode == 1
    assert "planted" not in dask.log.read_text()


def test_workers_that_see_other_data_are_refused(tars, tmp_path):
    with cluster(tmp_path / "cluster", workers=0) as dask:
        done = run("index", tars, "--dask", dask.address)
        assert done.returncode == 2
        assert done.stderr.endswith("the Dask scheduler has no workers: start some with `dask worker`\n")
        dask.start_worker("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {tars} && exec "$@"', "sh")
        while "Registered to:" not in dask.log.read_text():
            time.sleep(0.05)
        done = run("index", tars, "--dask", dask.address)
        assert done.returncode == 2
        assert f"sees other data at {tars}: 0 names" in done.stderr
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


def hidden_by(dask, path):
    """A worker that sees another file at the path, one of the same name."""
    other = dask.place / "other"
    other.write_bytes(b"other")
    dask.start_worker("unshare", "-m", "sh", "-c", f'mount --bind {other} {path} && exec "$@"', "sh")
    while "Registered to:" not in dask.log.read_text():
        time.sleep(0.05)


def test_shards_of_a_list_are_compared(tars, tmp_path):
    """They may be anywhere, so the directory of the list says nothing."""
    listing = tmp_path / "lists" / "data.list"
    listing.parent.mkdir()
    run("convert", tars, tmp_path / "touch", "--to", "touch", "--datatypes", "metainfo")
    listing.write_text((tmp_path / "touch" / "data.list").read_text())
    with cluster(tmp_path / "cluster", workers=0) as dask:
        hidden_by(dask, tmp_path / "touch" / "000000000" / "metainfo.bin")
        done = run("verify", listing, "--dask", dask.address)
    assert done.returncode == 2
    assert f"sees other data at {tmp_path}/touch/000000000: 2 names" in done.stderr
    assert done.stderr.count("\n") == 1


def test_for_indexes_of_other_tools_workers_are_asked_too(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n")
    write_tar(tmp_path / "a.tar", {"a.wav": b"1", "a.json": b"{}"})
    with cluster(tmp_path / "cluster", workers=0) as dask:
        hidden_by(dask, tmp_path / "a.jsonl")
        for command in (["jsonl", "a.jsonl"], ["pack", "a.tar", "a.jsonl", "-o", "x.idxpack"], ["--check", "a.jsonl"]):
            done = run("index", *command, "--dask", dask.address, cwd=tmp_path)
            assert done.returncode == 2, done
            assert f"sees other data at {tmp_path}/a.jsonl: 5 bytes" in done.stderr
        done = run("index", "tar", "a.tar", "--dask", dask.address, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{tmp_path}/a.tar.idx: 1 sample; indexed now\n"), done
    assert not (tmp_path / "a.jsonl.idx").exists()
    assert not (tmp_path / "x.idxpack").exists()


def test_nobody_answers(tars):
    done = run("index", tars, "--dask", "tcp://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("touchfs: tcp://127.0.0.1:1: no Dask scheduler answers there: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("address", ["bogus", "", "http://127.0.0.1:8786", "tcp://127.0.0.1", "tcp://127.0.0.1:99999"])
def test_what_is_no_address_is_one_line(tars, address):
    done = run("index", tars, "--dask", address)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"touchfs: {address}: is no address" if address else "touchfs: the address of the Dask"
    )
    assert done.stderr.count("\n") == 1


def test_a_client_that_fails_leaves_no_thread():
    before = set(threading.enumerate())
    with pytest.raises(LostWorkerError), connected("tcp://127.0.0.1:1", 1, [], []):
        raise AssertionError("nobody is there")
    assert {thread.name for thread in set(threading.enumerate()) - before if "IO loop" in thread.name} == set()


def test_tls_without_certificates(tars):
    done = run("index", tars, "--dask", "tls://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr == (
        "touchfs: tls://127.0.0.1:1: tls:// needs certificates: name them in Dask's configuration (docs/clusters.md)\n"
    )


def end_if_three(number: int) -> int:
    if number == 3:
        os._exit(1)
    return number * number


def test_a_task_that_kills_its_workers_is_lost_alone(tmp_path):
    settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = []
    told = "of the tasks were lost, the others are done: several workers died"
    with (
        cluster(tmp_path, **settings) as dask,
        connected(dask.address, 1, [], []) as executor,
        pytest.raises(LostTaskError, match=told),
    ):
        list(jobs.run(end_if_three, range(8), executor, done=done.append))
    assert 9 not in done
    assert len(done) >= 6  # the next task of the worker may count as lost with it: here no failure is allowed


def test_a_scheduler_without_workers_is_said_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(executor_module, "IDLE_SECONDS", 0.2)
    with cluster(tmp_path, workers=1) as dask, connected(dask.address, 1, [], []) as executor:
        results = jobs.run(time.sleep, [0] * 20, executor)
        next(results)
        dask.kill(dask.processes[1])
        started = threading.Timer(2, dask.start_worker)
        started.start()
        assert len(list(results)) == 19
        started.join()
        told = [
            f"no workers: waiting for one to join {dask.address}",
            f"a worker has joined {dask.address}: going on",
        ]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("touchfs")] == told


def test_a_scheduler_that_goes_away_is_an_error_of_ours(tmp_path):
    with cluster(tmp_path) as dask, connected(dask.address, 1, [], []) as executor:
        results = jobs.run(time.sleep, [0, 20, 20], executor)
        next(results)
        dask.kill(dask.processes[0])
        with pytest.raises(LostWorkerError):
            list(results)


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


def test_cancelled_tasks_end_for_all_who_wait(dask):
    """While the client gives others their results in a thread of its own."""
    with connected(dask.address, 1, [], []) as executor:
        for _ in range(20):
            futures = [executor.submit(pow, number, 2) for number in range(50)]
            cancelled = [future.cancel() for future in futures]
            _, others = wait(futures, timeout=60)
            assert not others
            assert [future.cancelled() for future in futures] == cancelled
        assert executor.submit(pow, 3, 2).result() == 9
