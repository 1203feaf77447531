"""Steps through `.touchfs/iterators/`, whatever happens meanwhile: each sample once, and never a step that is lost."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest
from mount_numbers import numbers_of
from mounts import is_waiting, kill_workers_while, make_iterator, said, touchfs
from processes import runs
from small_disks import AS_ROOT, fill, refused, small_disk
from touchnet import UINT8, write_modality
from waiting import wait_until

from touchfs import node

COUNT = 120
PROGRAMS = Path(__file__).parent.parent.parent / "docs/control-files.md"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "shards"
    for shard in range(3):
        lines = [b'{"key": "n%d"}' % number for number in range(shard, COUNT, 3)]
        write_modality(path / f"{shard}", "metainfo", UINT8, lines)
    return path


def steps(source: Path, **order):
    """What each step tells, by the node that the spec stands for: keys, and nothing once at the end of an epoch."""
    graph = node.LazyIndexedManifestIterator(source, **order)
    while True:
        yield from (sample.key for sample in graph)
        yield ""


def in_order(told: list[str], among: list[str]) -> bool:
    left = iter(among)
    return all(key in left for key in told)


# `read` of a shell asks for a byte at a time, so most answers are read in part by one worker and in part by another.
# That of bash prints the reason of a read that fails; that of other shells returns nothing, as at the end of an epoch.
READER = 'i=0; while [ $i -lt "$1" ]; do key=; read -r key < next; echo "$key"; i=$((i + 1)); done'


@pytest.mark.parametrize(
    ("partition", "readers", "workers", "durability"),
    [
        *(("block", 8, 2, "os"), ("stride", 8, 1, "fsync")),
        *(
            pytest.param(*each, marks=pytest.mark.variant)
            for each in [
                ("stride", 16, 1, "os"),
                ("block", 16, 2, "fsync"),
                ("stride", 1, 1, "os"),
                ("block", 2, 1, "os"),
            ]
        ),
    ],
)
def test_readers_of_one_rank_while_workers_are_killed(
    mount, numbers, tmp_path, partition, readers, workers, durability
):
    each, ranked = 320 // readers, {"rank": 1, "world_size": 3, "partition": partition}
    mounted = mount(numbers, "--state-dir", tmp_path / "state", "--workers", workers, "--durability", durability)
    train = make_iterator(
        mounted, f'{{"shuffle": 7, "output": "key", "rank": 1, "world_size": 3, "partition": "{partition}"}}'
    )
    command = ["bash", "-c", READER, "reader", str(each)]

    def start() -> list[subprocess.Popen[str]]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return [subprocess.Popen(command, cwd=train, **pipes) for _ in range(readers)]

    outputs = [reader.communicate() for reader in kill_workers_while(start, mounted, 6, workers, least=6)]
    assert {errors for _, errors in outputs} == {""}
    told = [output.splitlines() for output, _ in outputs]
    wanted = list(islice(steps(numbers, shuffle=True, seed=7, **ranked), len(outputs) * each))
    assert Counter(key for keys in told for key in keys) == Counter(wanted)
    assert wanted.count("") == len(wanted) // (COUNT // 3 + 1)
    assert all(in_order(keys, wanted) for keys in told)
    assert mounted.info()["internal_errors"] == 0


DURABILITIES = ["os", pytest.param("fsync", marks=pytest.mark.variant)]


@pytest.mark.parametrize("durability", DURABILITIES)
def test_an_open_that_is_not_read_is_no_step_and_holds_nobody_up(mount, numbers, tmp_path, durability):
    state = tmp_path / "state"
    mounted, other = (
        mount(numbers, "--state-dir", state, "--durability", durability, name=name) for name in ("mnt", "other")
    )
    train = make_iterator(mounted, '{"shuffle": 7, "output": "key"}')
    same = other.path / ".touchfs" / "iterators" / "train"
    wanted, told = steps(numbers, shuffle=True, seed=7), []
    for number in range(30):
        with open(train / "next", "rb", 0) as opened:
            time.sleep(0.001 * (number % 3))
            told += [said(same, "next") for _ in range(3)]
            if number % 2:
                told.append(opened.read().decode())
    assert told == [f"{key}\n" if key else "" for key in islice(wanted, len(told))]
    assert mounted.info()["internal_errors"] == other.info()["internal_errors"] == 0


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_process_that_is_killed_between_open_and_read(mount, numbers, tmp_path, durability):
    mounted = mount(numbers, "--state-dir", tmp_path / "state", "--durability", durability)
    train = make_iterator(mounted, '{"shuffle": 7, "output": "key"}')
    wanted = steps(numbers, shuffle=True, seed=7)
    for number in range(6):
        for _ in range(2):
            assert said(train, "next") == f"{next(wanted)}\n"
        with open(train / "next", "rb", 0) as opened:
            (control,) = wait_until(mounted.control)
            time.sleep(0.00004 * number)
            os.kill(control, signal.SIGKILL)
            if number % 2:
                assert opened.read().decode() == f"{next(wanted)}\n"
        assert said(train, "position") == f"{2 * (number + 1) + (number + 1) // 2}\n"


def test_a_process_that_is_stopped_between_open_and_read_holds_nobody_up(mount, numbers, tmp_path):
    state = tmp_path / "state"
    mounted = mount(numbers, "--state-dir", state, "--stuck-seconds", 1000)
    other = mount(numbers, "--state-dir", state, name="other")
    train = make_iterator(mounted, '{"shuffle": 7, "output": "key"}')
    same, wanted = other.path / ".touchfs" / "iterators" / "train", steps(numbers, shuffle=True, seed=7)
    (control,) = mounted.control()
    for number in (signal.SIGCONT, signal.SIGKILL):
        assert said(train, "next") == f"{next(wanted)}\n"
        with open(train / "next", "rb", 0) as opened:
            os.kill(control, signal.SIGSTOP)
            for _ in range(3):
                assert said(same, "next") == f"{next(wanted)}\n"
            done = touchfs("iterator", "next", numbers, "train", "--state-dir", state)
            assert (done.stdout, done.stderr) == (f"{next(wanted)}\n", "")
            os.kill(control, number)
            assert opened.read().decode() == f"{next(wanted)}\n"
    assert said(train, "position") == "12\n"


def test_a_process_that_is_stopped_at_any_moment_of_a_step_holds_nobody_up(mount, numbers, tmp_path):
    """If it has the lock of the state, it is replaced."""
    state = tmp_path / "state"
    mounted = mount(numbers, "--state-dir", state, "--stuck-seconds", 1000)
    other = mount(numbers, "--state-dir", state, name="other")
    train = make_iterator(mounted, '{"shuffle": 7, "output": "key", "repeat": true}')
    same, dice, told = other.path / ".touchfs" / "iterators" / "train", random.Random(5), []
    ended, killed = threading.Event(), set[int]()

    def control() -> int:
        """One that was not killed, though the supervisor may have replaced it since."""
        return wait_until(lambda: set(mounted.control()) - killed).pop()

    def step_on() -> list[str]:
        keys = []
        while not ended.is_set():
            keys.append(said(train, "next").strip())
        return keys

    with ThreadPoolExecutor(1) as thread:
        stepping = thread.submit(step_on)
        try:
            for number in 6 * (signal.SIGCONT, signal.SIGKILL):
                time.sleep(0.02 * dice.random())
                stopped = control()
                with suppress(ProcessLookupError):  # it was replaced
                    os.kill(stopped, signal.SIGSTOP)
                    try:
                        told += [said(same, "next").strip() for _ in range(3)]
                    finally:  # or nobody would end
                        os.kill(stopped, number)
                if number == signal.SIGKILL or not runs(stopped):
                    killed.add(stopped)
        finally:
            ended.set()
        keys = stepping.result(60)
    wanted = list(islice((key for key in steps(numbers, shuffle=True, seed=7) if key), len(told + keys)))
    assert Counter(told + keys) == Counter(wanted)
    assert in_order(told, wanted) and in_order(keys, wanted)
    assert int(said(train, "epoch")) * COUNT + int(said(train, "position")) == len(wanted)


def test_a_process_that_is_stopped_in_a_step_is_replaced_though_others_have_asked_it(mount, numbers, tmp_path):
    """It may have the lock of the state, for which all wait."""
    mounted = mount(numbers, "--state-dir", tmp_path / "state", "--stuck-seconds", 1000)
    train = make_iterator(mounted, '{"output": "key"}')
    (store,) = (tmp_path / "state").glob("*.sqlite")
    (stopped,) = mounted.control()
    with closing(sqlite3.connect(store, isolation_level=None)) as other, ThreadPoolExecutor(1) as thread:
        other.execute("BEGIN IMMEDIATE")
        stepping = thread.submit(said, train, "next")
        assert not wait([stepping], 0.5).done
        os.listdir(train)
        os.kill(stopped, signal.SIGSTOP)
        other.execute("ROLLBACK")
        try:
            wait_until(lambda: not runs(stopped), 20)
        finally:  # or nobody would end
            with suppress(ProcessLookupError):
                os.kill(stopped, signal.SIGKILL)
        assert stepping.result() == "n0\n"


def test_a_write_that_is_sent_again_is_taken_once(mount, numbers, tmp_path):
    """It waits for the store when the process that has it dies, and is sent to the next one."""
    mounted = mount(numbers, "--state-dir", tmp_path / "state")
    train = make_iterator(mounted, "{}")
    (database,) = (tmp_path / "state").glob("*.sqlite")
    (control,), writer = mounted.control(), []

    def write() -> int:
        writer.append(threading.get_native_id())
        return spec.write(b'{"batch"')

    with (
        open(train / "spec", "wb", 0) as spec,
        closing(sqlite3.connect(database, isolation_level=None)) as connection,
        ThreadPoolExecutor(1) as thread,
    ):
        connection.execute("BEGIN IMMEDIATE")
        written = thread.submit(write)
        wait_until(lambda: writer and is_waiting(writer[0]))
        resent = numbers_of(mounted).total("resends")
        os.kill(control, signal.SIGKILL)
        wait_until(lambda: mounted.control() not in ([], [control]))
        wait_until(lambda: numbers_of(mounted).total("resends") > resent)
        connection.execute("COMMIT")
        assert written.result(60) == 8
        spec.write(b": 5}")
    assert said(train, "batch") == "5\n"


def step(path: Path, told: list[str], disk: Path, free: int = 0) -> None:
    """As often as there is room for on a disk where somebody else takes what the store gives back."""
    for number in range(2000):
        empty_log(disk)  # or the next step has the room of the last one
        fill(disk, max(free - 512 * number, 0))
        told.append(said(path, "next").strip())


def empty_log(disk: Path) -> None:
    (store,) = disk.glob("*.sqlite")
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)


def of_docs(language: str) -> str:
    """The program in a language that the page about control files shows."""
    (example,) = re.findall(rf"^```{language}\n(.*?)^```$", PROGRAMS.read_text(), re.MULTILINE | re.DOTALL)
    return str(example)


def test_the_c_program_of_the_docs_goes_on_where_it_saved(mount, numbers, tmp_path):
    (tmp_path / "train.c").write_text(of_docs("c"))
    compiler = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "train.c", "-o", "train"]
    subprocess.run(compiler, cwd=tmp_path, check=True)
    # A prefix so long that what it prints does not fit into the pipe, so it cannot end before it is killed.
    prefix = "/" + "x" * 200
    mounted = mount(numbers, "--state-dir", tmp_path / "state", "--path-prefix", prefix)
    train = make_iterator(mounted, '{"shuffle": 7}')
    graph = node.LazyIndexedManifestIterator(numbers, True, 7)
    wanted = [f"train on {prefix}/{sample.path('json')}" for _ in range(2) for sample in graph]
    with subprocess.Popen(tmp_path / "train", cwd=tmp_path, stdout=subprocess.PIPE, pipesize=4096) as program:
        wait_until((tmp_path / "checkpoint").exists)
        program.kill()
    (position,) = re.findall('"position":([0-9]+)', (tmp_path / "checkpoint").read_text())
    assert int(position) % 10 == 0 and 0 < int(position) < COUNT
    for part in (wanted[int(position) : COUNT], wanted[COUNT:]):
        done = subprocess.run([tmp_path / "train"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == part
    (train / "spec").write_text('{"shuffle": 8}')
    done = subprocess.run([tmp_path / "train"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "checkpoint: Invalid argument\n")


@pytest.mark.parametrize("killed", [2, *(pytest.param(step, marks=pytest.mark.variant) for step in (1, 4))])
def test_the_bash_loop_of_the_docs_goes_on_where_it_was(mount, numbers, tmp_path, killed):
    mounted = mount(numbers, "--state-dir", tmp_path / "state", name="mnt")
    (tmp_path / "train-step").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "train-step").chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    told = tmp_path / "told"
    # It is killed in one of its steps, and started again: that step is made once more.
    kill = f"[ $(wc -l < ~/told) != {killed} ] || kill $$"
    train_step = 'train-step "${files[@]}"'
    script = of_docs("bash").replace(train_step, f"{train_step} >> ~/told; {kill}")
    for status in (-signal.SIGTERM, 0):
        assert subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=False).returncode == status
    wanted = (sample.path("json") for sample in node.LazyIndexedManifestIterator(numbers, True, 7, world_size=8))
    paths = [f"{mounted.path}/{path}" for path in wanted]
    steps = [paths[at : at + 4] for at in range(0, len(paths), 4)]
    assert [line.split() for line in told.read_text().splitlines()] == [*steps[:killed], *steps[killed - 1 :]]


def test_the_perl_loop_of_the_docs(mount, numbers, tmp_path):
    mounted = mount(numbers, "--state-dir", tmp_path / "state", name="mnt")
    train = make_iterator(mounted, '{"batch": 50, "output": "key"}')
    script = f'sub step {{ print "@_\n" }} {of_docs("perl")}'
    done = subprocess.run(["perl", "-w", "-e", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    wanted = list(islice(steps(numbers), COUNT))
    assert done.stdout.splitlines() == [" ".join(wanted[at : at + 50]) for at in range(0, COUNT, 50)]
    assert said(train, "epoch") == "1\n"


def test_a_spec_that_is_written_again_keeps_the_position(mount, numbers, tmp_path):
    mounted = mount(numbers, "--state-dir", tmp_path / "state")
    train = make_iterator(mounted, '{"shuffle": 7, "output": "key"}')
    wanted = steps(numbers, shuffle=True, seed=7)
    assert [said(train, "next").strip() for _ in range(3)] == list(islice(wanted, 3))
    (train / "spec").write_text('{"output": "key",  "shuffle": 7}')
    assert said(train, "next").strip() == next(wanted)
    (train / "spec").write_text('{"shuffle": 7, "output": "key", "batch": 2}')
    assert said(train, "next").split() == list(islice(wanted, 2))
    assert said(train, "position") == "6\n"


@pytest.mark.parametrize("durability", DURABILITIES)
class TestFullDisk:
    def test_steps_go_on_where_they_were(self, mount, numbers, tmp_path, durability):
        with small_disk(tmp_path / "disk") as disk:
            mounted = mount(numbers, "--state-dir", disk, "--durability", durability, "--log-file", tmp_path / "log")
            train = make_iterator(mounted, '{"shuffle": 7, "output": "key", "repeat": true}')
            told: list[str] = []
            # With so much left, another of the writes of a step is the one that fails.
            for pages in range(8):
                assert refused(step, train, told, disk, pages * 4096) == "ENOSPC"
                assert (mounted.path / "shards/0/n0.json").read_bytes() == b'{"key": "n0"}'
                (disk / "filling").unlink()
                assert int(said(train, "epoch")) * COUNT + int(said(train, "position")) == len(told)
            told.append(said(train, "next").strip())
            wanted = (key for key in steps(numbers, shuffle=True, seed=7) if key)
            assert told == list(islice(wanted, len(told)))
            assert mounted.info()["internal_errors"] == 0
            mounted.end()

    def test_what_the_store_itself_takes_of_the_disk_is_used_again(self, mount, numbers, tmp_path, durability):
        """Its log grows to 4 MB else. All the disk has is 1 MB."""
        with small_disk(tmp_path / "disk") as disk:
            mounted = mount(numbers, "--state-dir", disk, "--durability", durability, "--log-file", tmp_path / "log")
            train = make_iterator(mounted, '{"shuffle": 7, "output": "key", "repeat": true}')
            wanted = (key for key in steps(numbers, shuffle=True, seed=7) if key)
            fill(disk, 256 * 1024)
            assert [said(train, "next").strip() for _ in range(600)] == list(islice(wanted, 600))
            assert mounted.info()["internal_errors"] == 0
            mounted.end()

    def test_an_open_and_what_is_written_can_be_tried_again(self, mount, numbers, tmp_path, durability):
        with small_disk(tmp_path / "disk") as disk:
            mounted = mount(numbers, "--state-dir", disk, "--durability", durability, "--log-file", tmp_path / "log")
            train, other = (
                make_iterator(mounted, '{"shuffle": 7, "output": "key"}', name) for name in ("train", "other")
            )
            before = said(train, "token"), said(train, "spec")
            wanted = list(islice(steps(numbers, shuffle=True, seed=7), 2))
            with (
                open(train / "next", "rb", 0) as late,
                open(train / "batch", "wb", 0) as batch,
                open(train / "reset", "wb", 0) as reset,
            ):
                assert refused(step, other, [], disk) == "ENOSPC"
                fill(disk)
                assert refused(late.read, 100) == "ENOSPC"
                assert refused(batch.write, b"5") == "ENOSPC"
                assert refused(reset.write, b'{"epoch": 3}') == "ENOSPC"
                assert refused(os.mkdir, train.parent / "third") == "ENOSPC"
                (disk / "filling").unlink()
                assert (said(train, "token"), said(train, "spec")) == before
                assert late.read(100) == f"{wanted[0]}\n".encode()
                assert said(train, "next") == f"{wanted[1]}\n"
                batch.write(b"5")
                assert said(train, "batch") == "5\n"
                reset.write(b'{"epoch": 3}')
                assert said(train, "epoch") == "3\n"
            assert os.listdir(train.parent) == ["README", "train", "other"]
            assert mounted.info()["internal_errors"] == 0
            mounted.end()


@pytest.mark.parametrize("way", ["remounted", "bound"])
def test_a_mount_that_is_read_only_is_read_and_stepped_and_not_written(mount, numbers, tmp_path, way):
    """A step is a read. Whoever is given such a mount, as a container may be, moves iterators in no other way."""
    mounted = mount(numbers, "--state-dir", tmp_path / "state")
    train = make_iterator(mounted, '{"output": "key"}')
    control = (mounted.path / ".touchfs").resolve()
    with remounted(control) if way == "remounted" else bound(control, tmp_path / "bound") as place:
        there = place / "iterators" / "train"
        assert [said(there, file) for file in ("next", "peek", "position")] == ["n0\n", "n3\n", "1\n"]
        for file in ("spec", "token", "batch", "reset"):
            assert refused((there / file).write_text, "1") == "EROFS"
        assert refused(os.mkdir, there.parent / "other") == "EROFS"
        assert refused(os.rmdir, there) == "EROFS"
        assert said(there, "next") == "n3\n"
    (train / "reset").write_text("1")
    assert said(train, "next") == "n0\n"
    assert mounted.info()["internal_errors"] == 0


@contextmanager
def remounted(path: Path) -> Iterator[Path]:
    # -i: by the kernel alone. The mount program of the type is not asked.
    subprocess.run([*AS_ROOT, "mount", "-i", "-o", "remount,ro", path], check=True)
    yield path
    subprocess.run([*AS_ROOT, "mount", "-i", "-o", "remount,rw", path], check=True)


@contextmanager
def bound(path: Path, at: Path) -> Iterator[Path]:
    at.mkdir()
    subprocess.run([*AS_ROOT, "mount", "--bind", path, at], check=True)
    try:
        subprocess.run([*AS_ROOT, "mount", "-o", "remount,bind,ro", at], check=True)
        yield at
    finally:
        subprocess.run([*AS_ROOT, "umount", "-l", at], check=True)
