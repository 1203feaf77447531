"""`touchfs status` lists mounts and whether they answer, and `touchfs umount --abort` ends one that hangs."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command import INSTALLED, TOUCHFS
from mounts import Mount, is_mounted, touchfs
from processes import runs
from touchfs_mount.mounting.status import read_control_file
from touchfs_mount.mountpoints import control_place
from touchfs_mount.mountpoints.mountpoint import is_dead, mounted_at, unmount
from waiting import wait_until

from touchfs.core.errors import MountError

STRANGER = 65534


def status_of(path, *options):
    done = touchfs("status", path, "--json", *options)
    (found,) = json.loads(done.stdout)
    return found, done.returncode


def read_ahead_of(path) -> int:
    device = os.stat(path).st_dev
    return int(Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").read_text())


def test_a_mount_says_what_it_is(mount, speech):
    begun = datetime.now(UTC).replace(microsecond=0)
    mounted = mount(speech)
    found, status = status_of(mounted.path)
    assert status == 0
    assert (found["mountpoint"], found["health"]) == (str(mounted.path), "answers")
    assert found["workers"] == mounted.workers()
    assert found["info"] == mounted.info() | {key: found["info"][key] for key in ("requests", "late_replies")}
    assert begun <= datetime.fromisoformat(found["info"]["since"]) <= datetime.now(UTC)
    assert all(os.path.exists(found["info"][name]) for name in ("index", "state", "log"))
    text = touchfs("status", mounted.path).stdout.splitlines()
    assert text == [
        str(mounted.path),
        f"  source      {speech}",
        "  health      answers",
        "  content     TouchDataset (.bin/.idx), 3 shards, 10 samples",
        f"  since       {found['info']['since']}",
        f"  supervisor  {mounted.pid}",
        f"  workers     {mounted.workers()[0]}",
        *(f"  {name:<11} {found['info'][name]}" for name in ("index", "state", "log")),
        f"  read-ahead  {found['read_ahead_kb']} KiB",
    ]
    assert found["read_ahead_kb"] == read_ahead_of(mounted.path)


def test_all_mounts_are_listed(mount, speech):
    first, second = mount(speech), mount(speech, name="second")
    points = [each["mountpoint"] for each in json.loads(touchfs("status", "--json").stdout)]
    assert {str(first.path), str(second.path)} <= set(points)


def test_no_mount(tmp_path):
    done = touchfs("status", tmp_path)
    assert (done.returncode, done.stderr) == (1, f"touchfs: {tmp_path}: touchfs is not mounted here\n")


def test_a_dead_mount_is_named(mount, speech):
    mounted = mount(speech)
    mounted.crash()
    found, status = status_of(mounted.path)
    assert (found["health"], found["info"], status) == ("dead", {}, 1)
    for command in (["status", "--stats"], ["reload"]):
        done = touchfs(*command, mounted.path)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert done.stderr.endswith("dead: its daemon is gone; `touchfs umount --lazy` removes it\n")
    assert touchfs("umount", "--lazy", mounted.path).returncode == 0


def test_a_dead_mount_whose_control_mount_has_just_been_removed(mount, speech, monkeypatch):
    """By a mount of somebody else, which removes those of the dead."""
    mounted = mount(speech)
    mounted.crash()
    (control,) = control_place.controls_of(mounted_at(str(mounted.path)))
    subprocess.run(["umount", "--lazy", control.point], check=True)
    os.rmdir(control.point)
    monkeypatch.setattr(control_place, "controls_of", lambda mounted: [control])
    with pytest.raises(MountError, match="dead: its daemon is gone"):
        read_control_file(str(mounted.path), "stats")
    assert touchfs("umount", "--lazy", mounted.path).returncode == 0


def test_a_mount_that_hangs_is_named_and_ended(mount, speech):
    mounted = mount(speech)
    processes = mounted.processes()
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        with subprocess.Popen(["cat", mounted.path / ".touchfs" / "info"], stderr=subprocess.PIPE, text=True) as reader:
            found, status = status_of(mounted.path, "--wait-seconds", 0.5)
            assert (found["health"], status) == ("does not answer", 1)
            assert "umount --abort" in touchfs("status", mounted.path, "--wait-seconds", 0.5).stdout
            assert touchfs("umount", "--abort", mounted.path).returncode == 0
            _, error = reader.communicate(timeout=60)
            assert reader.returncode == 1
            assert error.endswith((": Software caused connection abort\n", ": Transport endpoint is not connected\n"))
        assert not is_mounted(mounted.path)
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not any(map(runs, processes)))


def test_a_mount_that_hangs_takes_no_time_from_others(mount, speech):
    hanging, well = mount(speech, name="hanging"), mount(speech, name="well")
    processes = hanging.processes()
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        listed = {each["mountpoint"]: each["health"] for each in json.loads(touchfs("status", "--json").stdout)}
        assert listed[str(hanging.path)] == "does not answer"
        assert listed[str(well.path)] == "answers"
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("command", ["status --stats", pytest.param("reload", marks=pytest.mark.variant)])
def test_no_command_waits_for_a_mount_that_hangs(mount, speech, command):
    mounted = mount(speech)
    processes = mounted.processes()
    try:
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        # Not in a `with`: a process that does wait could not be killed before the mount goes on.
        waiting = subprocess.Popen([TOUCHFS, *command.split(), mounted.path], stderr=subprocess.PIPE, text=True)
        _, error = waiting.communicate(timeout=60)
    finally:
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
    hangs = f"touchfs: {mounted.path}: does not answer; `touchfs umount --abort` ends it\n"
    assert (waiting.returncode, error) == (1, hangs)


@pytest.mark.usefixtures("as_root")
def test_the_mount_of_another_user_is_named_and_is_no_problem(speech):
    def as_stranger(*arguments):
        ids = [f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
        capabilities = "-all,+dac_read_search"  # our Python may be in a home that others cannot enter
        ids += [f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}"]
        command = ["setpriv", *ids, INSTALLED, *arguments, path]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")

    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)  # all may get at the mount point
        path = Path(place, "mnt")
        mounted = Mount(path, speech)
        try:
            shown = as_stranger("status")
            assert (shown.returncode, shown.stderr) == (0, "")
            assert "  health      another user's\n" in shown.stdout
            done = as_stranger("reload")
            wanted = f"touchfs: {path}: this is the mount of root: run the command as root\n"
            assert (done.returncode, done.stderr) == (1, wanted)
            done = as_stranger("umount", "--abort")
            wanted = f"touchfs: {path}: this is the mount of root: unmount it as root\n"
            assert (done.returncode, done.stderr) == (1, wanted)
            assert is_mounted(path)
        finally:
            mounted.end()


@pytest.fixture
def plant(tmp_path):
    """Mounts a file system that calls itself touchfs and has this text as its info. Gives its place and process."""
    with ExitStack() as until_unmounted:

        def mount_it(text: str, source: str = "planted", kind: str = "touchfs") -> tuple[Path, subprocess.Popen]:
            point = Path(tempfile.mkdtemp(dir=tmp_path))
            command = [sys.executable, Path(__file__).with_name("planted_info.py"), point, source, kind]
            started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            until_unmounted.enter_context(started)
            until_unmounted.callback(lambda: is_mounted(point) and unmount(str(point), lazy=True))
            started.stdin.write(text.encode())
            started.stdin.close()
            assert started.stdout.read() == b""
            assert is_mounted(point)
            return point, started

        yield mount_it


@pytest.fixture
def planted(plant):
    return lambda text: plant(text)[0]


@pytest.mark.parametrize(
    "text",
    [
        *('{"pid": "self"}', "[" * 200_000),
        *(pytest.param(text, marks=pytest.mark.variant) for text in ("", "[1]", "3", '{"a": 1}', "\0")),
    ],
)
def test_an_info_that_touchfs_does_not_write_is_named(planted, text):
    point = planted(text)
    found, status = status_of(point)
    assert (found["health"], found["info"], found["workers"], status) == ("unreadable", {}, [], 1)
    wanted = "  health      its .touchfs/info is missing, or none that touchfs writes"
    assert touchfs("status", point).stdout.splitlines()[2] == wanted
    assert f"{point}" in touchfs("doctor").stdout
    done = touchfs("reload", point)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr


@pytest.mark.usefixtures("as_root")
def test_a_control_mount_that_is_older_than_a_mount_is_asked_last(mount, speech, plant, tmp_path):
    """It is of a mount that had the number of the device, and whose daemon is about to exit."""
    mounted = mount(speech, "--control", "none")
    device, later = mounted_at(str(mounted.path)).device, tmp_path / "later"
    older, _ = plant("", source=device, kind=control_place.KIND)
    later.mkdir()
    subprocess.run(["mount", "--bind", mounted.path, later], check=True)
    subprocess.run(["umount", mounted.path], check=True)
    newer, _ = plant("", source=device, kind=control_place.KIND)
    found = control_place.controls_of(mounted_at(str(later)))
    assert [each.point for each in found] == [str(newer), str(older)]
    assert touchfs("umount", later).returncode == 0


@pytest.mark.parametrize("options", [(), ("--control", "none")])
def test_a_dead_control_mount_of_one_that_had_the_number_before(mount, speech, plant, options):
    """A mount gets the lowest number of a device that is free; a control mount tells whose it is by that."""
    mounted = mount(speech, *options)
    left, process = plant("", source=mounted_at(str(mounted.path)).device, kind=control_place.KIND)
    process.kill()
    process.wait()
    assert is_dead(str(left))
    found, status = status_of(mounted.path)
    assert (found["health"], status) == ("answers", 0)
    assert touchfs("umount", mounted.path).returncode == 0
    assert not is_mounted(left)


def test_no_info_has_another_process_signalled(mount, speech, planted):
    """Not even one that is called touchfs, or the daemon of another mount."""
    theirs = mount(speech)
    with subprocess.Popen(["touchfs-train", "100"], executable="/bin/sleep") as bystander:
        try:
            for victim in (bystander.pid, theirs.pid):
                point = planted(json.dumps(theirs.info() | {"pid": victim}))
                found, _ = status_of(point)
                assert (found["health"], found["workers"]) == ("answers", [])
                done = touchfs("reload", point)
                assert done.returncode == 1
                wanted = f"touchfs: {point}: its process {victim} is in another container, or another user's\n"
                assert done.stderr == wanted
            assert bystander.poll() is None
        finally:
            bystander.kill()
    assert theirs.info()["reloads_begun"] == 0


@pytest.mark.usefixtures("as_root")
def test_bind_mounts_of_a_mount(mount, speech, tmp_path):
    """One of the whole mount is a mount. One of a part is not listed, and no reason to end the whole."""
    mounted = mount(speech)
    part, whole = tmp_path / "part", tmp_path / "whole"
    for directory, source in ((part, mounted.path / "shards"), (whole, mounted.path)):
        directory.mkdir()
        subprocess.run(["mount", "--bind", source, directory], check=True)
    listed = [each["mountpoint"] for each in json.loads(touchfs("status", "--json").stdout)]
    assert str(part) not in listed
    assert {str(mounted.path), str(whole)} <= set(listed)
    assert str(part) not in touchfs("doctor").stdout
    refused = f"touchfs: {part}: only a part of the mount at {mounted.path} is mounted here\n"
    for command in (["status"], ["status", "--stats"], ["reload"], ["umount", "--abort"]):
        done = touchfs(*command, part)
        assert (done.returncode, done.stderr) == (1, refused)
    assert status_of(whole)[0]["health"] == "answers"
    for path, places in ((mounted.path, f"{part}, {whole}"), (part, whole), (whole, None)):
        done = touchfs("umount", path)
        still = f"touchfs: {path}: unmounted here, but still mounted at {places}\n" if places else ""
        assert (done.returncode, done.stderr) == (0, still)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("over", ["below/mnt", pytest.param("below", marks=pytest.mark.variant)])
def test_a_mount_that_another_one_hides_is_not_called_hung(mount, speech, tmp_path, over):
    (tmp_path / "below").mkdir()
    mounted = mount(speech, name="below/mnt")
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / over], check=True)
    try:
        found, status = status_of(mounted.path)
        assert (found["health"], found["info"], status) == ("hidden", {}, 0)
        assert "hidden: to see it, umount what is mounted over" in touchfs("doctor").stdout
        assert touchfs("umount", "--abort", mounted.path).returncode == 1
    finally:
        subprocess.run(["umount", tmp_path / over], check=True)
    assert status_of(mounted.path)[0]["health"] == "answers"


@pytest.mark.usefixtures("as_root")
def test_umount_says_that_the_daemon_goes_on_elsewhere(mount, speech):
    """In another mount namespace, where nobody here sees the mount."""
    mounted = mount(speech)
    elsewhere = ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; read line"]
    with subprocess.Popen(elsewhere, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        done = touchfs("umount", mounted.path)
        goes_on = "unmounted, but its daemon goes on: perhaps another container still has the mount"
        assert (done.returncode, done.stderr) == (0, f"touchfs: {mounted.path}: {goes_on}\n")
        other.communicate(b"\n")
    wait_until(lambda: not runs(mounted.pid))
