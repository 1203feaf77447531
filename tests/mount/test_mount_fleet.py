"""Mounts of one dataset, as of several machines, whose iterators are in one PostgreSQL."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest
from command import INSTALLED
from mounts import Mount, is_mounted, is_stepped, is_waiting, touchfs
from own_mounts import FORGET_OTHERS
from postgres_server import own_server, postgres_data, server
from touchnet import UINT8, write_modality
from variants import with_variants
from waiting import wait_until

import touchfs as touchfs_library
from touchfs.sample_set import SampleSet

__all__ = ["own_server", "postgres_data", "server"]

COUNT = 200
# So many steps a reader takes before it waits for a line.
PACE = 20
# Takes steps until the end of the epoch, or until SIGTERM, but tells those that it took. An error of the database is no
# end: the open file is read again.
READER = f"""
import errno, itertools, os, signal, sys, time
path, told = sys.argv[1:]
ends = []
signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
with open(told, "ab", 0) as output:
    for step in itertools.count():
        if step % {PACE} == 0:
            sys.stdin.readline()
        if ends:
            break
        file = os.open(path, os.O_RDONLY)
        while True:
            try:
                text = os.read(file, 1 << 16)
                break
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                time.sleep(0.05)
        os.close(file)
        if not text:
            break
        output.write(text)
"""
# A machine: it mounts at a path, and two readers take a share of the steps each.
MACHINE = """
touchfs=$0 source=$1 path=$2 told=$3 steps=$4
shift 4
FORGET_OTHERS
trap 'fusermount3 -u "$path"' EXIT
trap 'exit 1' TERM
"$touchfs" mount "$source" "$path" "$@" > "$told.log" || exit 1
take() {
    step=0
    while [ $step -lt $steps ]; do
        cat "$path/.touchfs/iterators/train/next" >> "$1" || exit 1
        step=$((step + 1))
    done
}
take "$told.0" & first=$!
take "$told.1" & second=$!
wait $first && wait $second
""".replace("FORGET_OTHERS", FORGET_OTHERS)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "shards"
    write(path, COUNT)
    return path


def write(path: Path, count: int) -> None:
    write_modality(path / "0", "metainfo", UINT8, [b'{"key": "n%d"}' % number for number in range(count)])


@pytest.fixture
def fleet(mount, numbers, tmp_path):
    """Mounts with states of their own, as those of other machines, and iterators in the server."""

    def make(server, name, *options, source=numbers, state="numbers"):
        store = ["--state-store", server.url, "--state-name", f"{state}-{tmp_path.name}"[-48:]]
        return mount(source, "--state-dir", tmp_path / f"{name}.state", *store, *options, name=name)

    return make


@pytest.fixture(scope="module")
def pair(server, numbers, tmp_path_factory):
    """Two mounts of a fleet, for tests that name their iterators."""
    place = tmp_path_factory.mktemp("pair")
    store = ["--state-store", server.url, "--state-name", f"pair-{os.getpid()}"]
    mounts = [Mount(place / name, numbers, "--state-dir", place / f"{name}.state", *store) for name in ("one", "two")]
    yield mounts
    for mounted in mounts:
        mounted.end()


def iterator(mounted, name="train", **spec):
    path = mounted.path / ".touchfs" / "iterators" / name
    if not path.exists():
        path.mkdir()
        (path / "spec").write_text(json.dumps({"output": "key", "shuffle": 7, **spec}))
    return path


def readers(paths, told):
    return [
        subprocess.Popen(
            [sys.executable, "-c", READER, path / "next", told / f"{number}"], stdin=subprocess.PIPE, bufsize=0
        )
        for number, path in enumerate(paths)
    ]


def let_go_on(running, paces=None):
    """Let each take so many times `PACE` steps more, or all."""
    for process in running:
        with suppress(BrokenPipeError):  # it has ended
            if paces is None:
                process.stdin.close()
            else:
                process.stdin.write(b"\n" * paces)


def all_told(told: Path) -> Counter[str]:
    return Counter(line for path in told.iterdir() for line in path.read_text().split())


def keys(count=COUNT) -> Counter[str]:
    return Counter(f"n{number}" for number in range(count))


@pytest.mark.variant
def test_each_sample_goes_to_one_reader_of_any_mount(fleet, own_server, tmp_path):
    """While workers are killed, and the database crashes and comes back."""
    one, two = fleet(own_server, "one"), fleet(own_server, "two", "--workers", 2)
    told = tmp_path / "told"
    told.mkdir()
    # The last reader of an epoch is told its end; the others begin the next one, and are stopped.
    running = readers([iterator(one), iterator(two), iterator(one), iterator(two)], told)
    dice, crashes, kills = random.Random(3), 0, 0
    let_go_on(running, 1)
    allowed = len(running) * PACE

    def progress() -> int:
        return sum(all_told(told).values())

    def goes_on(since: int) -> bool:
        return progress() > since or any(process.poll() is not None for process in running)

    try:
        while all(process.poll() is None for process in running):
            if kills < 12:
                for mounted in (one, two):
                    with suppress(ProcessLookupError, IndexError):
                        os.kill(dice.choice(mounted.workers()), signal.SIGKILL)
                        kills += 1
            if crashes < 2 and progress() > allowed - COUNT / 8:
                let_go_on(running, crashes + 1)  # in the end to 320 steps, so to no third epoch
                allowed += len(running) * PACE
                own_server.kill()
                own_server.start()
                crashes += 1
            since = progress() + dice.randrange(10)
            if crashes < 2:  # they wait then
                since = min(since, allowed - 1)
            wait_until(lambda since=since: goes_on(since))
    finally:
        for process in running:
            process.terminate()
        let_go_on(running)
        for process in running:
            process.wait(60)
    assert crashes == 2
    counted = all_told(told)
    first = Counter(dict.fromkeys(counted, 1))
    assert first == keys(), "none is lost"
    # Until they were stopped, the others took some of the next epoch, each once.
    more = sum((counted - first).values())
    assert set((counted - first).values()) <= {1}
    position = int((iterator(one) / "position").read_text())
    assert more <= position <= more + len(running)
    assert int((iterator(one) / "epoch").read_text()) == 1


def test_machines_that_see_nothing_of_each_other(server, tmp_path, numbers):
    """Each has a mount namespace of its own, so they mount at the same path, and here nothing is there."""
    store = ["--state-store", server.url, "--state-name", f"machines-{tmp_path.name}"[-48:]]
    spec = ("create", numbers, "train", "--spec", '{"shuffle": 7, "output": "key"}')
    assert touchfs("iterator", *spec, *store, "--state-dir", tmp_path / "mine").stderr == ""
    path, told = tmp_path / "mnt", tmp_path / "told"
    path.mkdir()
    told.mkdir()
    machines = []
    try:
        for name in ("one", "two"):
            options = [*store, "--state-dir", tmp_path / f"{name}.state"]
            arguments = [numbers, path, told / name, COUNT // 4, *options]
            command = ["unshare", "-m", "sh", "-c", MACHINE, INSTALLED, *arguments]
            machines.append(subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True))
        wait_until(lambda: len(list(told.glob("*.[01]"))) == 4)
        assert not is_mounted(path)
        assert list(path.iterdir()) == []
        for machine in machines:
            assert machine.communicate(timeout=120)[1] == ""
            assert machine.returncode == 0
    finally:
        for machine in machines:
            machine.terminate()
            machine.wait()
    assert sum((Counter(taken.read_text().split()) for taken in told.glob("*.[01]")), Counter()) == keys()


def test_a_mount_that_dies_takes_nothing_from_the_others(fleet, server, tmp_path):
    """But what its own readers had asked for when it died."""
    one, two = fleet(server, "one"), fleet(server, "two")
    told = tmp_path / "told"
    told.mkdir()
    running = readers([iterator(one), iterator(two)], told)
    try:
        let_go_on(running, 2)
        wait_until(lambda: sum(all_told(told).values()) > COUNT / 4)
        two.crash()  # they may have taken 80 of 200 steps
        let_go_on(running)
        assert running[1].wait(60) != 0
        assert running[0].wait(60) == 0
    finally:
        for process in running:
            process.kill()
            process.wait()
    counted = all_told(told)
    assert set(counted.values()) == {1}
    assert COUNT - 1 <= sum(counted.values()) <= COUNT


def test_while_the_database_is_away_the_data_stays(fleet, own_server):
    mounted = fleet(own_server, "one")
    train = iterator(mounted)
    first = (train / "next").read_text()
    own_server.kill()
    stop, reads, failures = threading.Event(), 0, []

    def read_data():
        nonlocal reads
        while not stop.wait(0.01):
            number = reads % COUNT
            try:
                assert (mounted.path / f"shards/0/n{number}.json").read_bytes() == b'{"key": "n%d"}' % number
            except BaseException as error:
                failures.append(error)
                return
            reads += 1

    reading = threading.Thread(target=read_data)
    reading.start()
    try:
        with pytest.raises(OSError) as refused:
            (train / "next").read_text()
        assert refused.value.errno == errno.EIO
        assert "cannot be reached" in (train / "error").read_text()
        assert "cannot be reached" in (mounted.path / ".touchfs" / "errors").read_text()
        wait_until(lambda: reads > 50 or failures)
    finally:
        stop.set()
        reading.join()
    assert not failures
    own_server.start()
    wait_until(lambda: is_stepped(train))
    assert first not in (train / "next").read_text()
    assert mounted.info()["internal_errors"] == 0


def test_a_database_that_hangs_is_given_up(fleet, own_server):
    """As if the network swallowed all packets: the data stays, and unmounting waits for nothing."""
    mounted = fleet(own_server, "one")
    train = iterator(mounted)
    (train / "next").read_text()
    own_server.pause()
    try:
        step = subprocess.Popen(["cat", train / "next"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: is_waiting(step.pid))
        for number in range(9):
            assert (mounted.path / f"shards/0/n{number}.json").read_bytes() == b'{"key": "n%d"}' % number
        assert step.poll() is None
        assert touchfs("umount", mounted.path, "--abort").returncode == 0
        assert step.wait(60) != 0
        mounted.end()
        step.communicate()
    finally:
        own_server.resume()


WEIGHTS = {0: [3, 1], 50: [1, 3], 100: [1, 1]}
# The spec, and the same in Python.
ORDERS = {
    "shuffled": ({"shuffle": 7}, lambda ds: ds.shuffle(7)),
    "windowed": ({"shuffle": 7, "window": 48}, lambda ds: ds.shuffle(7, window=48)),
    "lanes": ({"shuffle": 7, "window": 48, "lanes": 4}, lambda ds: ds.shuffle(7, window=48, lanes=4)),
    "a mixture": (
        {"mux": [{"shuffle": 1}, {"shuffle": 2}], "weights": WEIGHTS, "shuffle": 0},
        lambda ds: touchfs_library.mux([(ds.shuffle(1), 3), (ds.shuffle(2), 1)], weights=WEIGHTS),
    ),
}
DRAWN = {
    "drawn": (
        {"mux": [{"shuffle": 1, "weight": 3}, {"shuffle": 2}], "shuffle": 7},
        lambda ds: SampleSet.mux(ds.shuffle(1), ds.shuffle(2), weights=[3, 1], seed=7),
    ),
}


def steps(paths: list[Path], count: int) -> list[list[str]]:
    """The texts of so many steps of each path, by as many readers."""
    with ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(lambda path: [(path / "next").read_text() for _ in range(count)], paths))


@pytest.mark.parametrize("order", ORDERS | DRAWN)
def test_mounts_share_an_iterator_in_any_order(pair, numbers, order):
    """Each step is the next batch, whoever reads it. Both sources of a mixture have each sample."""
    spec, same = (ORDERS | DRAWN)[order]
    expected = [sample.key for sample in same(touchfs_library.open(numbers))]
    sources = len(expected) // COUNT
    assert set(Counter(expected).values()) == {sources}
    told = steps([iterator(mounted, order, batch=10, **spec) for mounted in 2 * pair], sources * COUNT // 40)
    assert sorted(chain(*told)) == sorted(text_of(expected[at : at + 10]) for at in range(0, len(expected), 10))


@pytest.mark.parametrize("order", with_variants(ORDERS, lambda order: order in ("lanes", "a mixture")))
def test_mounts_share_global_batches(fleet, server, numbers, order):
    """Two ranks, each with a reader of either mount; when one mount has died, four ranks by the other."""
    spec, same = ORDERS[order]
    samples = same(touchfs_library.open(numbers)).map(key_of)
    expected = list(samples.loader(global_batch=20, rank=0, world_size=1))
    one, two = fleet(server, "one"), fleet(server, "two")

    def rank_of(mounted, rank, ranks):
        share = {"partition": "batches", "global_batch": 20, "rank": rank, "world_size": ranks, "batch": 20 // ranks}
        return iterator(mounted, f"{rank}-of-{ranks}", **spec, **share)

    ranks = [[rank_of(mounted, rank, 2) for mounted in (one, two)] for rank in range(2)]
    told = [list(chain(*steps(paths, 2))) for paths in ranks]
    for rank, texts in enumerate(told):
        assert sorted(texts) == sorted(text_of(batch[rank * 10 :][:10]) for batch in expected[:4])
    (token,) = {(path / "token").read_text() for paths in ranks for path in paths}
    two.crash()
    new = [rank_of(one, rank, 4) for rank in range(4)]
    for path in new:
        (path / "token").write_text(token)
    parts = steps(new, len(expected) - 4)
    assert ["".join(texts) for texts in zip(*parts, strict=True)] == [text_of(batch) for batch in expected[4:]]
    assert [(path / "next").read_text() for path in new] == [""] * 4


def key_of(sample):
    return sample.key


def text_of(batch):
    return "".join(f"{key}\n" for key in batch)


def test_another_dataset_and_a_server_that_is_not_there(fleet, server, tmp_path, numbers):
    fleet(server, "one")
    other = tmp_path / "other"
    write(other, 3)
    name = f"numbers-{tmp_path.name}"[-48:]
    for arguments, said in (
        (["--state-store", server.url, "--state-name", name], "belongs to another dataset"),
        (["--state-store", "postgresql://127.0.0.1:1/db"], "cannot be reached"),
        (["--state-store", server.url.replace("postgres@", "postgres:hunter2@")], "must not contain a password"),
        (["--state-name", name], "--state-name needs --state-store"),
    ):
        done = touchfs("mount", other, tmp_path / "mnt", "--state-dir", tmp_path / "s", *arguments)
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert "hunter2" not in done.stderr


def test_a_mount_that_has_reloaded_other_data_is_refused_its_iterators(fleet, server, tmp_path):
    source = tmp_path / "source"
    write(source, 5)
    mounted = fleet(server, "one", source=source)
    train = iterator(mounted)
    first = (train / "next").read_text()
    write(tmp_path / "more", 7)
    (tmp_path / "more" / "0").rename(source / "1")
    assert touchfs("reload", mounted.path).returncode == 0
    assert len(list((mounted.path / "shards" / "1").iterdir())) == 7
    with pytest.raises(OSError) as refused:
        (train / "next").read_text()
    assert refused.value.errno == errno.EIO
    assert "belongs to another dataset" in (train / "error").read_text()
    (source / "1").rename(tmp_path / "away")
    assert touchfs("reload", mounted.path).returncode == 0
    assert (train / "next").read_text() not in (first, "")


def test_commands_and_mounts_have_the_same_iterators(fleet, server, tmp_path, numbers):
    """And a state that is saved in one place restores in another."""
    mounted = fleet(server, "one")
    store = ["--state-store", server.url, "--state-name", f"numbers-{tmp_path.name}"[-48:]]
    elsewhere = tmp_path / "copied"
    subprocess.run(["cp", "-r", numbers, elsewhere], check=True)

    def command(action, *arguments):
        done = touchfs("iterator", action, elsewhere, *arguments, *store, "--state-dir", tmp_path / "s")
        assert done.returncode == 0, done.stderr
        return done.stdout

    command("create", "train", "--spec", '{"shuffle": 3, "batch": 2, "output": "key"}')
    train = mounted.path / ".touchfs" / "iterators" / "train"
    told = [command("next", "train"), (train / "next").read_text(), command("next", "train")]
    assert len({line for text in told for line in text.split()}) == 6
    saved = (train / "token").read_text()
    following = (train / "next").read_text()
    (tmp_path / "saved").write_text(saved)
    command("restore", "train", tmp_path / "saved")
    assert command("next", "train") == following
    local = ["--state-dir", tmp_path / "local"]
    assert touchfs("iterator", "create", numbers, "again", "--spec", (train / "spec").read_text(), *local).stderr == ""
    assert touchfs("iterator", "restore", numbers, "again", tmp_path / "saved", *local).stderr == ""
    assert touchfs("iterator", "next", numbers, "again", *local).stdout == following
    assert mounted.info()["state_store"].startswith(f"postgresql://127.0.0.1:{server.port}/postgres (state numbers-")
