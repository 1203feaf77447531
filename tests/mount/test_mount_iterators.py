"""`.touchfs/iterators/`: what any program can do with `cat` and `echo`, while workers come and go."""

import errno
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mounts import Mount, kill_workers_while, said
from small_disks import refused
from waiting import wait_until

from touchfs import node
from touchfs.containers.touchnet.writer import TouchNetWriter

COUNT = 120
# The modes of the control files that belong to no iterator.
FIXED = {"info": 0o444, "errors": 0o400, "stats": 0o444, "log-level": 0o600}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    """A dataset of many small samples."""
    path = tmp_path_factory.mktemp("numbers") / "shards"
    path.mkdir()
    for shard in range(3):
        with TouchNetWriter(path / f"{shard}", {"texttoken": np.dtype("<i4"), "metainfo": np.dtype("u1")}) as writer:
            for number in range(shard, COUNT, 3):
                told = {"key": f"n{number}", "even": number % 2 == 0}
                writer.add({"texttoken": bytes(4 * number), "metainfo": json.dumps(told).encode()})
    return path


@pytest.fixture(scope="module")
def mounted(numbers, tmp_path_factory) -> Iterator[Mount]:
    """For tests that make their iterators, and remove them."""
    place = tmp_path_factory.mktemp("mounted")
    mounted = Mount(place / "mnt", numbers, "--state-dir", place / "state", "--workers", 2)
    yield mounted
    assert mounted.info()["internal_errors"] == 0
    mounted.end()


@pytest.fixture
def train(mounted) -> Iterator[Path]:
    """An iterator of the test's own."""
    path = mounted.path / ".touchfs" / "iterators" / "train"
    path.mkdir()
    yield path
    path.rmdir()


def shell(command: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], cwd=path, capture_output=True, text=True, check=False)


def test_a_session_in_a_shell(mounted, tmp_path):
    iterators = mounted.path / ".touchfs" / "iterators"
    script = f"""
        set -e
        mkdir train
        echo '{{"shuffle": 7, "rank": 1, "world_size": 8, "batch": 3}}' > train/spec
        cat train/next
        cat train/token > {tmp_path}/checkpoint
        cat train/next | tee {tmp_path}/before
        cat {tmp_path}/checkpoint > train/token
        cat train/next > {tmp_path}/after
        cmp {tmp_path}/before {tmp_path}/after
        xargs -n 1 test -e < {tmp_path}/after
        cat train/position train/len train/epoch train/batch
        rmdir train
    """
    done = shell(script, iterators)
    assert done.returncode == 0, done.stderr
    *paths, position, length, epoch, batch = done.stdout.splitlines()
    assert [position, length, epoch, batch] == ["6", "15", "0", "3"]
    graph = node.LazyIndexedManifestIterator(mounted.source, True, 7, rank=1, world_size=8)
    wanted = [f"{mounted.path}/{sample.path(next(iter(sample)))}" for sample in graph]
    assert paths == wanted[:6]
    assert os.listdir(iterators) == ["README"]


def test_an_epoch_and_its_end(train):
    (train / "spec").write_text('{"output": "key", "batch": 50}')
    for _ in range(2):
        assert [said(train, "next").count("\n") for _ in range(4)] == [50, 50, 20, 0]
    assert said(train, "epoch") == "2\n"


class TestReads:
    def test_an_open_is_a_step(self, train):
        (train / "spec").write_text('{"output": "key", "batch": 3}')
        wanted = [said(train, "peek")]
        with open(train / "next", "rb", 0) as first, open(train / "next", "rb", 0):
            pieces = [first.read(1) for _ in range(5)]
            assert first.read() == wanted[0].encode()[5:] and first.read() == b""
            assert b"".join(pieces) == wanted[0].encode()[:5]
        assert said(train, "position") == "3\n"
        shell("head -c 1 next; stat next; ls -la . ; test -r next; : < next", train)
        assert said(train, "position") == "6\n"

    def test_what_copies_with_sendfile_copies_all(self, train, tmp_path):
        for file in ("token", "peek", "spec", "next"):
            wanted = said(train, "peek" if file == "next" else file)
            shutil.copyfile(train / file, tmp_path / file)
            assert (tmp_path / file).read_text() == wanted
        assert said(train, "position") == "1\n"
        shutil.copy(tmp_path / "token", train / "token")
        assert said(train, "position") == "0\n"

    def test_threads_and_processes_share_the_samples(self, train):
        (train / "spec").write_text('{"output": "key", "shuffle": 1}')
        reader = f"for i in $(seq {COUNT // 4}); do cat next; done"
        readers = [subprocess.Popen(["bash", "-c", reader], cwd=train, stdout=subprocess.PIPE) for _ in range(4)]
        told = b"".join(reader.communicate()[0] for reader in readers).decode().split()
        assert sorted(told) == sorted(f"n{number}" for number in range(COUNT))
        assert said(train, "next") == ""

    def test_one_that_is_removed(self, train):
        said(train, "next")
        with open(train / "next", "rb", 0) as file:
            train.rmdir()
            assert refused(file.read, 10) == "ENOENT"
        assert not train.exists()
        train.mkdir()
        assert said(train, "position") == "0\n"

    def test_readme_says_what_there_is(self, train):
        text = (train.parent / "README").read_text()
        for file in os.listdir(train):
            assert f" {file} " in text
        assert text.isascii() and max(map(len, text.splitlines())) <= 120

    def test_relative_paths_and_other_prefixes(self, mount, numbers, tmp_path):
        path = (
            mount(numbers, "--path-prefix", "/data/", "--state-dir", tmp_path / "state").path
            / ".touchfs"
            / "iterators"
            / "x"
        )
        path.mkdir()
        assert said(path, "next") == "/data/shards/0/n0.json\n"
        (path / "spec").write_text('{"output": "relpath"}')
        assert said(path, "next") == "shards/0/n3.json\n"


class TestWrites:
    @pytest.mark.parametrize(
        "command",
        [
            "echo '{V}' > spec",
            "printf '%s' '{V}' > spec",
            "echo '{V}' >> spec",
            "echo '{V}' | tee spec",
            "echo '{V}' | tee -a spec",
            "echo '{V}' | dd of=spec bs=1 status=none",
            "echo '{V}' | dd of=spec bs=7 conv=notrunc status=none",
            "echo '{V}' | dd of=spec bs=1M seek=0 conv=fsync status=none",
            "truncate -s 0 spec && echo '{V}' > spec",
            "exec 3> spec; printf '%s' '{{\"batch\":' >&3; printf '9}}' >&3",
            "exec 3<> spec; echo '{V}' >&3; cat <&3",
            "(echo '{V}'; head -c 300000 /dev/zero | tr '\\0' ' ') | dd of=spec bs=1M conv=notrunc iflag=fullblock",
            "printf '{V}' > /tmp/v$$ && cp /tmp/v$$ spec; rm /tmp/v$$",
        ],
    )
    def test_ways_to_write(self, train, command):
        done = shell(command.format(V='{"batch": 9}'), train)
        assert done.returncode == 0, done.stderr
        assert said(train, "batch") == "9\n"
        assert said(train, "error") == ""

    def test_a_value_of_more_than_a_request(self, train):
        text = '{"batch":' + " " * 700_000 + "8}\n"
        with open(train / "spec", "wb", 0) as file:
            assert file.write(text.encode()) == len(text)
        assert said(train, "batch") == "8\n"

    def test_what_is_refused_changes_nothing_and_says_why(self, train):
        (train / "spec").write_text('{"shuffle": 7, "batch": 2}')
        said(train, "next")
        before = said(train, "token"), said(train, "spec")
        for file, text, why in [
            (
                "spec",
                "shuffle",
                "spec: not JSON: 'shuffle' cannot be there (at byte 0)",
            ),
            ("spec", '{"shuffle": 7}}', "not JSON: '}' cannot be there (at byte 14)"),
            ("spec", '{"shuffel": 7}', "spec: there is no 'shuffel': there are select, "),
            ("spec", '{"where": "evn"}', "where, column 4: expected"),
            ("spec", '{"where": "odd == 1"}', "no sample has the field odd"),
            ("batch", "0", "batch is an integer from 1 to 100000, not 0"),
            ("token", before[1], 'the kind of a token is "state" or "item"'),
            ("token", before[0].replace('"seed":7', '"seed":8'), "seed"),
            ("reset", "2", "reset takes 1"),
        ]:
            descriptor = os.open(train / file, os.O_WRONLY | os.O_TRUNC)
            assert refused(os.write, descriptor, text.encode()) == "EINVAL"
            os.close(descriptor)
            assert why in said(train, "error")
            assert (said(train, "token"), said(train, "spec")) == before
        (train / "spec").write_text('{"batch": 2')
        wait_until(lambda: said(train, "error") == "spec: the written JSON value was incomplete: dropped\n")
        assert (said(train, "token"), said(train, "spec")) == before

    def test_several_values_in_one_open(self, train):
        done = shell("exec 3> batch; for i in 3 4 5; do echo $i >&3; cat batch; done", train)
        assert done.stdout.split() == ["3", "4", "5"]

    @pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.variant)])
    def test_fuzzed(self, train, mounted, count):
        (train / "spec").write_text('{"shuffle": 7, "batch": 2}')
        said(train, "next")
        before = [said(train, file) for file in ("token", "spec", "position")]
        dice = random.Random(3)
        sound = {"spec": before[1], "token": before[0], "batch": "2", "reset": '{"epoch": 0}'}
        for _ in range(count):
            file = dice.choice(list(sound))
            text = bytearray(sound[file].encode())
            for _ in range(dice.randrange(1, 4)):
                text[dice.randrange(len(text))] = dice.choice(b'{}[],:"0\\ \xff' + bytes([dice.randrange(256)]))
            descriptor = os.open(train / file, os.O_WRONLY)
            try:
                os.write(descriptor, text[: dice.randrange(1, len(text) + 1)])
            except OSError as error:
                assert errno.errorcode[error.errno] == "EINVAL"
                told = [said(train, file) for file in ("token", "spec", "position")]
                assert told == before
            os.close(descriptor)
            before = [said(train, file) for file in ("token", "spec", "position")]


class TestRefusals:
    def test_files_are_made_and_moved_by_nobody(self, train):
        iterators = train.parent
        assert refused(os.mkdir, train) == "EEXIST"
        assert refused(os.mkdir, train / "new") == "EPERM"
        assert refused(os.mkdir, iterators / "a\nb") == "EINVAL"
        for path in (train / "new", iterators / "new"):
            assert refused(os.open, path, os.O_CREAT | os.O_WRONLY) == "EPERM"
            assert refused(os.symlink, "/", path) == "EPERM"
            assert refused(os.mkfifo, path) == "EPERM"
        assert refused(os.rename, train, iterators / "other") == "EPERM"
        assert refused(os.rename, train / "spec", train / "token") == "EPERM"
        assert refused(os.unlink, train / "spec") == "EPERM"
        assert refused(os.unlink, iterators / "README") == "EPERM"
        assert refused(os.link, train / "spec", train / "new") == "EPERM"
        assert refused(os.rmdir, iterators) == "EROFS"
        assert refused(os.mkdir, iterators.parent / "new") == "EROFS"
        for path in (train, train / "spec", iterators):
            assert refused(os.chmod, path, 0o777) == "EPERM"
            assert refused(os.utime, path) == "EPERM"
        assert refused(os.truncate, train / "spec", 5) == "EPERM"
        assert refused(os.truncate, train / "len", 0) == "EPERM"
        os.truncate(train / "spec", 0)
        for file in ("next", "peek", "position", "len", "epoch", "error"):
            assert refused(os.open, train / file, os.O_WRONLY) == "EACCES"
        assert refused(os.open, iterators / "README", os.O_WRONLY) == "EACCES"
        assert os.listdir(iterators) == ["README", "train"]
        assert said(train, "position") == "0\n"

    def test_modes(self, mount, numbers, train, tmp_path):
        def modes(directory: Path) -> dict[str, int]:
            return {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(directory)}

        wanted = dict.fromkeys(("spec", "token", "batch", "reset"), 0o644) | {"next": 0o600}
        wanted |= dict.fromkeys(("peek", "position", "len", "epoch", "error"), 0o444)
        assert modes(train) == wanted
        assert modes(train.parent) == {"README": 0o444, "train": 0o555}
        assert modes(train.parent.parent) == {**FIXED, "iterators": 0o755}
        options = "--control-mode", "0666", "--state-dir", tmp_path / "another state"
        wide = mount(numbers, *options, name="wide").path / ".touchfs" / "iterators"
        (wide / "x").mkdir()
        writable = dict.fromkeys(("spec", "token", "batch", "reset"), 0o666)
        assert modes(wide / "x") == wanted | writable | {"next": 0o644}
        assert modes(wide.parent) == {**FIXED, "iterators": 0o777}


class TestPositionsLast:
    def test_over_the_end_of_the_daemon(self, mount, tmp_path, numbers):
        first = mount(numbers, "--state-dir", tmp_path / "state")
        path = first.path / ".touchfs" / "iterators" / "train"
        path.mkdir()
        (path / "spec").write_text('{"shuffle": 7, "batch": 7}')
        told = [said(path, "next")]
        first.end()
        again = mount(numbers, "--state-dir", tmp_path / "state", name="elsewhere")
        path = again.path / ".touchfs" / "iterators" / "train"
        assert said(path, "position") == "7\n"
        told.append(said(path, "next"))
        again.crash()
        subprocess.run(["fusermount3", "-u", "-z", again.path], check=False, capture_output=True)
        third = mount(numbers, "--state-dir", tmp_path / "state", name="third")
        path = third.path / ".touchfs" / "iterators" / "train"
        while text := said(path, "next"):
            told.append(text)
        names = [Path(line).name for text in told for line in text.split()]
        assert len(names) == len(set(names)) == COUNT

    def test_in_another_mount_without_the_state_of_the_first(self, mount, train, tmp_path, numbers):
        spec = {"mux": [{"weight": 2, "where": "even == true"}, {"select": "samples/1"}], "shuffle": 3, "output": "key"}
        (train / "spec").write_text(json.dumps(spec))
        for _ in range(11):
            said(train, "next")
        (tmp_path / "checkpoint").write_text(said(train, "token"))
        rest = [said(train, "next") for _ in range(80)]
        shutil.copytree(numbers, tmp_path / "copy")
        other = mount(tmp_path / "copy", "--state-dir", tmp_path / "another state", name="other")
        path = other.path / ".touchfs" / "iterators" / "x"
        path.mkdir()
        (path / "spec").write_text(json.dumps(spec))
        done = shell(f"cat {tmp_path}/checkpoint > token", path)
        assert done.returncode == 0, done.stderr + said(path, "error")
        assert [said(path, "next") for _ in range(80)] == rest


def test_the_token_of_a_file_positions_an_iterator_at_it(mounted, train):
    (train / "spec").write_text('{"shuffle": 7, "output": "relpath"}')
    order = [said(train, "next").strip() for _ in range(COUNT)]
    (train / "reset").write_text("1")
    for position in (0, 57, COUNT - 1):
        (train / "token").write_bytes(os.getxattr(mounted.path / order[position], "user.touchfs.token"))
        assert said(train, "position") == f"{position}\n"
        assert said(train, "next").strip() == order[position]
    directory = (mounted.path / order[0]).parent
    assert refused(os.getxattr, directory, "user.touchfs.token") == "ENODATA"


@pytest.fixture(scope="module")
def spoken(speech, tmp_path_factory) -> Iterator[Mount]:
    place = tmp_path_factory.mktemp("spoken")
    mounted = Mount(place / "mnt", speech, "--state-dir", place / "state")
    yield mounted
    mounted.end()


@pytest.mark.parametrize("source", ["segments", "merged/max=0.5", "merged/max=0.5,rate=8000,format=flac"])
def test_the_token_of_a_segment_positions_an_iterator_at_it(spoken, source):
    path = spoken.path / ".touchfs" / "iterators" / source.replace("/", "-")
    path.mkdir()
    (path / "spec").write_text(json.dumps({"select": source, "shuffle": 3, "output": "relpath"}))
    order = [said(path, "next").strip() for _ in range(int(said(path, "len")))]
    assert len({Path(one).name for one in order}) > 1
    for position, one in [*enumerate(order)][::3]:
        (path / "reset").write_text("1")
        for file in (spoken.path / one, (spoken.path / one).with_suffix(".txt")):
            assert "user.touchfs.token" in os.listxattr(file)
            (path / "token").write_bytes(os.getxattr(file, "user.touchfs.token"))
            assert said(path, "position") == f"{position}\n"
            assert said(path, "peek").strip() == one


READER = """
import sys
told = []
for _ in range(int(sys.argv[2])):
    with open(sys.argv[1], "rb", 0) as file:
        text = b""
        while piece := file.read(40):
            text += piece
    told.append(text.decode())
print("".join(told), end="")
"""


def test_each_sample_once_while_workers_are_killed(mounted, train):
    """Eight readers, and a worker killed every few milliseconds: requests are sent again, steps are not made again."""
    (train / "spec").write_text('{"shuffle": 7, "repeat": true, "output": "key", "batch": 2}')
    steps = 60
    command = [sys.executable, "-c", READER, train / "next", str(steps)]

    def start() -> list[subprocess.Popen[str]]:
        return [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]

    readers = kill_workers_while(start, mounted, 4, least=6)
    outputs = [reader.communicate()[0] for reader in readers]
    assert {reader.returncode for reader in readers} == {0}
    counts = Counter(line for output in outputs for line in output.splitlines())
    total = len(readers) * steps * 2
    epochs, rest = divmod(total, COUNT)
    assert sum(counts.values()) == total
    assert len(counts) == COUNT and set(counts.values()) <= {epochs, epochs + 1}
    assert sum(count > epochs for count in counts.values()) == rest
    assert int(said(train, "epoch")) * COUNT + int(said(train, "position")) == total
