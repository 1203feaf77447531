"""The state directory goes away, or is spoilt, while a dataset is mounted: the data stays, and the iterators return."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import TOUCHFS
from mounts import is_stepped, touchfs
from own_mounts import FORGET_OTHERS
from small_disks import AS_ROOT, fill, refused, small_disk
from touchnet import UINT8, write_modality
from waiting import wait_until

COUNT = 60


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("numbers") / "shards"
    write_shard(path / "0")
    return path


def line(number: int) -> bytes:
    """With a segment, so that there is `merged/`."""
    return b'{"key": "n%d", "segments": [{"start": 0, "end": 1}]}' % number


def write_shard(path: Path) -> None:
    write_modality(path, "metainfo", UINT8, [*map(line, range(COUNT))])


def check_data(mounted, shard: str = "0") -> None:
    for number in range(COUNT):
        assert (mounted.path / f"shards/{shard}/n{number}.json").read_bytes() == line(number)
    assert (mounted.path / "merged/max=30").is_dir()
    assert mounted.info()["internal_errors"] == 0


class Moved:
    """The directory has another name."""

    says = "is gone: put it back, or mount again"

    def __init__(self, state: Path) -> None:
        self.state, self.away = state, state.with_name("away")
        state.rename(self.away)

    def put_back(self) -> None:
        shutil.rmtree(self.state, ignore_errors=True)
        self.away.rename(self.state)


class Replaced(Moved):
    """There is another one in its place, with a store of the same dataset."""

    says = "is not the store that was mounted: put that back, or mount again"

    def __init__(self, state: Path, source: Path) -> None:
        super().__init__(state)
        done = touchfs("iterator", "create", source, "other", "--state-dir", state)
        assert done.returncode == 0, done.stderr


class Deleted(Moved):
    """All files are deleted, and come back from a copy."""

    def __init__(self, state: Path) -> None:
        self.state, self.away = state, state.with_name("copy")
        shutil.copytree(state, self.away)
        shutil.rmtree(state)


class Spoilt:
    """What is in the files is nonsense."""

    says = "damaged"

    def __init__(self, state: Path) -> None:
        self.files = {path: path.read_bytes() for path in state.glob("*.sqlite*")}
        for path, data in self.files.items():
            if not path.name.endswith("-shm"):
                path.write_bytes(b"\xa5" * max(len(data), 4096))

    def put_back(self) -> None:
        for path, data in self.files.items():
            if not path.name.endswith("-shm"):
                path.write_bytes(data)


TROUBLES = {
    "moved": lambda state, source: Moved(state),
    "replaced": Replaced,
    "deleted": lambda state, source: Deleted(state),
    "spoilt": lambda state, source: Spoilt(state),
}


@pytest.mark.parametrize(
    ("trouble", "killed"),
    [
        pytest.param(
            trouble,
            killed,
            id=f"{trouble}-{'worker-killed' if killed else 'known'}",
            marks=[] if killed == place % 2 else [pytest.mark.variant],
        )
        for place, trouble in enumerate(TROUBLES)
        for killed in (False, True)
    ],
)
def test_data_is_served_and_iterators_say_why_they_are_not_until_it_is_back(mount, numbers, tmp_path, trouble, killed):
    state = tmp_path / "state"
    mounted = mount(numbers, "--state-dir", state, "--log-file", tmp_path / "log")
    train = mounted.path / ".touchfs/iterators/train"
    train.mkdir()
    (train / "spec").write_text('{"shuffle": 7, "repeat": true, "output": "key"}')
    (train / "next").read_text()
    spoil = TROUBLES[trouble](state, numbers)
    if killed:
        os.kill(mounted.workers()[0], signal.SIGKILL)
    wait_until(lambda: not is_stepped(train))
    for _ in range(3):
        assert refused((train / "next").read_text) == "EIO"
        assert refused((train / "spec").write_text, "{}") == "EIO"
        assert spoil.says in (train / "error").read_text()
        assert spoil.says in (mounted.path / ".touchfs/errors").read_text()
        assert os.listdir(train.parent) == ["README", "train"]
        check_data(mounted)
    assert len(mounted.workers()) == 1
    spoil.put_back()
    wait_until(lambda: is_stepped(train))
    position = int((train / "position").read_text())
    (train / "next").read_text()
    assert int((train / "position").read_text()) == position % COUNT + 1
    assert (train / "error").read_text() == ""
    check_data(mounted)


def test_a_dead_disk(mount, numbers, tmp_path):
    """Its device is gone: each write and each read that is not in memory fails."""
    disk, image = tmp_path / "disk", tmp_path / "image"
    disk.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run([*AS_ROOT, "mount", "-o", "loop", image, disk], check=True)
    try:
        mounted = mount(numbers, "--state-dir", disk / "state", "--log-file", tmp_path / "log", "--durability", "fsync")
        train = mounted.path / ".touchfs/iterators/train"
        train.mkdir()
        (train / "spec").write_text('{"shuffle": 7, "repeat": true, "output": "key"}')
        assert is_stepped(train)
        os.truncate(image, 0)
        for path in (disk / "state").iterdir():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        wait_until(lambda: not is_stepped(train))  # the device takes what is written, until more must be read from it
        for _ in range(20):
            is_stepped(train)
            check_data(mounted)
        assert not is_stepped(train)
        assert (train / "error").read_text() != ""
        mounted.end()
    finally:
        subprocess.run([*AS_ROOT, "umount", "-l", disk], check=True)


def test_a_reload_goes_on_without_the_store(mount, tmp_path):
    """What is new gets numbers that are nobody else's, and keeps them when the store is back."""
    source, state = tmp_path / "shards", tmp_path / "state"
    source.mkdir()
    for name in ("1", "2"):
        write_shard(source / name)
    mounted = mount(source, "--state-dir", state, "--log-file", tmp_path / "log")

    def inodes() -> dict[str, int]:
        return {name: (mounted.path / "shards" / name).stat().st_ino for name in os.listdir(mounted.path / "shards")}

    before = inodes()
    moved = Moved(state)
    write_shard(source / "0")
    assert touchfs("reload", mounted.path).returncode == 0
    check_data(mounted, "0")
    without = inodes()
    assert {name: without[name] for name in before} == before
    moved.put_back()
    write_shard(source / "3")
    assert touchfs("reload", mounted.path).returncode == 0
    after = inodes()
    assert {name: after[name] for name in without} == without
    assert len(set(after.values())) == 4
    check_data(mounted, "3")


class TestReadOnly:
    def test_needs_no_directory_to_write_to(self, numbers, tmp_path):
        """Each file system there is, is read-only."""
        environment = {name: str(tmp_path / "nowhere") for name in ("HOME", "XDG_STATE_HOME")}
        environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": os.environ["PATH"]}
        mount_point = tmp_path / "mnt"
        mount_point.mkdir()
        assert touchfs("index", numbers, env=environment).returncode == 0
        script = f"""
            set -e
            mount --make-rprivate /
            {FORGET_OTHERS}
            mount -o remount,bind,ro /
            mount -o remount,bind,ro /dev/shm
            ! touch {tmp_path}/file /dev/shm/file 2> /dev/null
            {TOUCHFS} mount --control none {numbers} {mount_point} > /dev/null
            cd {mount_point}
            ! ls .touchfs 2> /dev/null
            cat shards/0/n7.json; echo
            ls -d merged/max=30
            info='import os, json; print(json.loads(os.getxattr(".", "user.touchfs.info"))["pid"])'
            pid=$({sys.executable} -c "$info")
            zygote=$(cat /proc/$pid/task/$pid/children)
            kill -9 $(cat /proc/$((zygote))/task/$((zygote))/children)
            ls merged
            cat shards/0/n8.json; echo
            cd /
            umount {mount_point}
        """
        command = [*AS_ROOT, "unshare", "--mount", "sh", "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        lines = [line(7).decode(), "merged/max=30", "max=30", line(8).decode()]
        assert (done.stdout.splitlines(), done.stderr, done.returncode) == (lines, "", 0)

    def test_makes_no_store(self, mount, numbers, tmp_path):
        mounted = mount(numbers, "--control", "none", "--state-dir", tmp_path / "state")
        check_data(mounted)
        assert [path.suffix for path in (tmp_path / "state").iterdir()] == [".log"]
        assert ".touchfs" not in os.listdir(mounted.path)

    @pytest.mark.parametrize("free", [4096, *(pytest.param(each, marks=pytest.mark.variant) for each in (0, 40960))])
    def test_is_named_where_the_state_directory_is_full(self, numbers, tmp_path, free):
        with small_disk(tmp_path / "disk") as disk:
            fill(disk, free)
            options = ["--state-dir", disk, "--log-file", tmp_path / "log"]
            refused = touchfs("mount", numbers, tmp_path / "mnt", *options)
            (line,) = refused.stderr.splitlines()
            assert refused.returncode == 1
            assert "the disk is full: nothing was changed" in line
            assert line.endswith("; a mount with --control none needs no state")
