"""Where can be mounted, and how it is refused: one line and an exit status for each reason."""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import INSTALLED, TOUCHFS
from mounts import SPEECH, is_mounted, touchfs
from own_mounts import FORGET_OTHERS
from tars import write_tar
from touchfs_mount.mountpoints import mountpoint
from waiting import wait_until

MONDAY = "shards/000000000/talks/monday.wav"


def refused(status: int, *arguments: object, **how: object) -> str:
    """What `touchfs mount` says when it fails with this status: one line, and nothing is left behind."""
    done = touchfs("mount", *arguments, **how)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert done.stderr.startswith("touchfs: ") or "Try `touchfs mount --help`" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not is_mounted(arguments[1])
    return done.stderr


def test_a_missing_mount_point_is_made_and_removed(mount, speech):
    mounted = mount(speech)
    assert (mounted.path / MONDAY).exists()
    assert touchfs("umount", mounted.path).returncode == 0
    assert not mounted.path.exists()


def test_one_that_was_there_stays(mount, speech, tmp_path):
    (tmp_path / "mnt").mkdir()
    mounted = mount(speech)
    assert touchfs("umount", mounted.path).returncode == 0
    assert os.listdir(mounted.path) == []


def test_mounting_again_at_once(mount, speech):
    """The daemon that ends, and removes the mount point it made, is not in the way of the next one."""
    path = mount(speech).path
    for unmount in [[TOUCHFS, "umount"], ["fusermount3", "-u"], ["umount"]]:
        subprocess.run([*unmount, path], check=True)
        mounted = mount(speech)
        assert (path / MONDAY).exists()
    assert touchfs("umount", path).returncode == 0
    wait_until(lambda: mounted.processes() == [mounted.pid])


def test_it_answers_as_soon_as_the_command_returns(speech, tmp_path):
    script = 'for i in $(seq 3); do "$1" mount "$2" "$3" && ls "$3/shards" && "$1" umount "$3" || exit 1; done >&2'
    done = subprocess.run(["sh", "-c", script, "sh", TOUCHFS, speech, tmp_path / "mnt"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("000000002\n") == 3


NAMES = ["with space", "with, comma", "back\\slash", "ünïcode", "new\nline"]


@pytest.mark.parametrize(
    "name",
    [
        "-o ünïcode, with back\\slash\nand a new line",
        *(pytest.param(name, marks=pytest.mark.variant) for name in NAMES),
    ],
)
def test_odd_names(mount, speech, tmp_path, name):
    source = tmp_path / f"source {name}"
    shutil.copytree(speech, source)
    path = tmp_path / name
    done = touchfs("mount", "--", source.name, name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    try:
        assert (path / MONDAY).exists()
        command = ["findmnt", "-no", "SOURCE", path]
        listed = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C.UTF-8"})
        assert listed.stdout == str(source).replace("\n", "\\x0a") + "\n"
    finally:
        done = touchfs("umount", "--", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not path.exists()


def test_through_a_symlink(mount, speech, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    assert touchfs("mount", speech, tmp_path / "link").returncode == 0
    assert (tmp_path / "there" / MONDAY).exists()
    assert touchfs("umount", tmp_path / "link").returncode == 0
    assert not is_mounted(tmp_path / "there")


def test_swapped_arguments(tmp_path):
    write_tar(tmp_path / "wds" / "a.tar", {"x.txt": b"x"})
    (tmp_path / "mnt").mkdir()
    told = "is not empty (it holds 'a.tar'); DATASET comes first, and the mount point last\n"
    assert refused(10, tmp_path / "mnt", tmp_path / "wds").endswith(told)
    told = "a.tar: is not a directory; DATASET comes first, and the mount point last\n"
    assert refused(10, tmp_path / "mnt", tmp_path / "wds" / "a.tar").endswith(told)


def test_in_the_way(mount, speech, tmp_path):
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "file").touch()
    assert "is not empty (it holds 'file')" in refused(10, speech, occupied)
    told = f"touchfs: {occupied}/file: is not a directory; mount on an empty directory\n"
    assert refused(10, speech, occupied / "file") == told
    assert f": {tmp_path}/no does not exist: `mkdir -p` it first\n" in refused(
        10, speech, tmp_path / "no" / "where" / "mnt"
    )
    mounted = mount(speech)
    done = touchfs("mount", speech, mounted.path)
    assert (done.returncode, done.stderr.count("\n")) == (10, 1)
    assert f"touchfs is already mounted here (from {speech})" in done.stderr
    assert (mounted.path / MONDAY).exists()
    done = touchfs("mount", speech, "/proc")
    assert (done.returncode, done.stderr) == (
        10,
        "touchfs: /proc: proc is already mounted here; use another directory\n",
    )


def test_what_the_daemon_needs_is_not_inside_the_mount_point(speech, tmp_path):
    assert "the state" in refused(10, speech, tmp_path / "mnt", "--state-dir", tmp_path / "mnt" / "state")
    assert "the log " in refused(10, speech, tmp_path / "mnt", "--log-file", tmp_path / "mnt" / "log")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "mnt")}
    assert "the index" in refused(10, speech, tmp_path / "mnt", env=environment)
    assert not (tmp_path / "mnt").exists()


def test_a_mount_point_inside_the_source_is_refused_with_a_place_beside_it(copied, tmp_path):
    """A mount there would be listed, indexed and copied as a part of the dataset."""
    (tmp_path / "link").symlink_to(copied)
    for source, point in [(copied, copied / "mnt"), (tmp_path / "link", copied / "mnt"), (copied, copied)]:
        said = refused(10, source, point)
        assert f"the mount point is inside the dataset: mount beside it, at {copied}.mnt\n" in said
    assert "inside the dataset: mount beside it" in refused(10, "shards", "shards/mnt", cwd=tmp_path)
    assert "the dataset is inside the mount point: mount beside it, at " in refused(10, copied, tmp_path)
    assert not (copied / "mnt").exists()


def test_a_mount_point_beside_a_file_that_is_the_source(copied, mount):
    """Its directory is not the source."""
    (copied / "data.list").write_text(f"{copied}/000000000 audio+metainfo\n")
    mounted = mount(copied / "data.list", name="shards/mnt")
    assert (mounted.path / MONDAY).exists()


def test_a_source_that_cannot_be_had(speech, tmp_path):
    mnt = tmp_path / "mnt"
    assert "no such file or directory" in refused(11, tmp_path / "nothing", mnt)
    (tmp_path / "empty").mkdir()
    assert "no shards here" in refused(11, tmp_path / "empty", mnt)
    (tmp_path / "data.list").write_text("one\n")
    assert "line 1 is not" in refused(13, tmp_path / "data.list", mnt)
    (tmp_path / "file").touch()
    assert "/proc/self/mem: Input/output error" in refused(12, "/proc/self/mem", mnt)
    assert "Try `touchfs mount --help`" in refused(2, speech, mnt, "--workers", 0)
    assert not mnt.exists()


def test_a_source_of_another_format(tmp_path):
    (tmp_path / "train.tfrecord").write_bytes(bytes(99))
    (tmp_path / "README.md").write_text("# speech corpus\n")
    for name, what in (
        ("train.tfrecord", "a TFRecord file"),
        ("README.md", "a Markdown text"),
    ):
        told = refused(13, tmp_path / name, tmp_path / "mnt")
        assert f"{name}: is {what}; touchfs reads .bin/.idx, .tar and .jsonl" in told
    assert "this is a local path" in refused(2, "file:///x.tar", tmp_path / "mnt")
    assert "does not answer" in refused(12, "http://127.0.0.1:1/x.tar", tmp_path / "mnt", "--timeout", "0.1")


@pytest.mark.parametrize(
    "source",
    [
        "locked/shards",
        *(
            pytest.param(each, marks=pytest.mark.variant)
            for each in ("locked", "locked.tar", "locked/shards/000000000/audio.idx")
        ),
    ],
)
def test_no_permission_on_the_way(speech, tmp_path, source):
    """For root without the right to pass over permissions, which is what another user is."""
    shutil.copytree(speech, tmp_path / "locked" / "shards")
    (tmp_path / "locked.tar").touch()
    for path in (tmp_path / "locked", tmp_path / "locked.tar"):
        shutil.chown(path, "nobody")
        path.chmod(0o600)
    capabilities = "-dac_override,-dac_read_search"
    setpriv = ["setpriv", "--bounding-set", capabilities, "--inh-caps", "-all", INSTALLED]
    for command, status in ((["mount", tmp_path / source, tmp_path / "mnt"], 12), (["info", tmp_path / source], 1)):
        done = subprocess.run([*setpriv, *command], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (status, "")
        assert done.stderr.endswith(": Permission denied\n")
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "mnt").exists()


def test_no_fuse_extra(speech, tmp_path):
    code = "import sys; sys.modules['pyfuse3'] = None; from touchfs.cli.main import main; main()"
    command = [sys.executable, "-c", code, "mount", speech, tmp_path / "mnt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (15, "")
    assert done.stderr.startswith("touchfs: mounting needs the fuse extra (pyfuse3): install libfuse3-dev")
    assert done.stderr.count("\n") == 1


def damaged(path):
    """A shard of which nothing can be served."""
    path.mkdir(parents=True)
    (path / "audio.bin").write_bytes(bytes(8))
    (path / "audio.idx").write_bytes(b"MMIDIDX\0\0")
    return path


def all_sequences_damaged(path):
    """Of the right counts, but none of them holds."""
    path.mkdir(parents=True)
    entries = struct.pack("<9sQBQQiiqqqqq", b"MMIDIDX\0\0", 1, 4, 2, 3, 5, 5, 0, 4, 0, 1, 2)
    (path / "x.idx").write_bytes(entries)
    (path / "x.bin").write_bytes(bytes(8))
    return path


def data_without_samples(path):
    path.mkdir(parents=True)
    (path / "audio.idx").write_bytes(struct.pack("<9sQBQQq", b"MMIDIDX\0\0", 1, 3, 0, 1, 0))
    (path / "audio.bin").write_bytes(bytes(8))
    return path


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (damaged, "shard 0: audio.idx: the index ends inside its header"),
        *(
            pytest.param(*each, marks=pytest.mark.variant)
            for each in (
                (all_sequences_damaged, "shard x: 2 of 2 samples are damaged"),
                (data_without_samples, "shard 0: audio.bin has 8 bytes, and its index has no sample"),
            )
        ),
    ],
)
def test_nothing_that_can_be_served(speech, tmp_path, make, told):
    source, mnt = tmp_path / "source", tmp_path / "mnt"
    make(source / "0")
    said = refused(13, source, mnt)
    assert f"touchfs: {source}: nothing of it can be served: {told}" in said
    assert not mnt.exists()
    assert touchfs("info", source).returncode == touchfs("info", "--json", source).returncode == 1
    assert touchfs("ls", source).returncode == 0, "its ERROR.txt can be read"
    shutil.copytree(speech / "000000000", source / "1")
    with_errors = "1 shard with errors, and --strict allows none: " + told
    assert f"touchfs: {source}: {with_errors}" in refused(13, source, mnt, "--strict")
    assert touchfs("info", "--strict", source).returncode == touchfs("info", source).returncode == 1
    done = touchfs("mount", source, mnt)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 shard with errors, see ERROR.txt" in done.stdout
    assert touchfs("umount", mnt).returncode == 0


def test_nothing_to_serve_is_no_error(tmp_path):
    """Empty shards, strictly too."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x.jsonl").touch()
    for options in ((), ("--strict",)):
        assert touchfs("info", tmp_path / "source", *options).returncode == 0
        done = touchfs("mount", tmp_path / "source", tmp_path / "mnt", *options)
        assert (done.returncode, done.stderr) == (0, "")
        assert touchfs("umount", tmp_path / "mnt").returncode == 0


def test_a_damaged_sample_of_which_something_is_shown_is_served(tmp_path):
    (tmp_path / "x.jsonl").write_text("nonsense\n")
    done = touchfs("mount", tmp_path / "x.jsonl", tmp_path / "mnt")
    assert (done.returncode, done.stderr) == (0, "")
    assert touchfs("umount", tmp_path / "mnt").returncode == 0
    assert "1 of 1 sample is damaged" in refused(13, tmp_path / "x.jsonl", tmp_path / "mnt", "--strict")


def test_state_and_log_that_cannot_be_written(speech, tmp_path):
    (tmp_path / "file").touch()
    mnt = tmp_path / "mnt"
    assert "choose another --state-dir" in refused(1, speech, mnt, "--state-dir", tmp_path / "file")
    assert "the log cannot be written: Is a directory" in refused(1, speech, mnt, "--log-file", tmp_path)
    assert "the log cannot be written: No such file" in refused(1, speech, mnt, "--log-file", tmp_path / "no" / "log")
    assert not mnt.exists()


def in_a_namespace(script: str, *arguments: object, user: str = "root", device: str = "rw"):
    """Run a script where /dev is another: with nothing in it, or with a fuse device for all, or for root only.

    Another user may read and enter everything there, as Python may be anywhere.
    """
    modes = {"missing": "", "rw": "mknod -m 666 /dev/fuse c 10 229;", "private": "mknod -m 600 /dev/fuse c 10 229;"}
    setup = f"mount -t tmpfs none /dev; {modes[device]} mknod -m 666 /dev/null c 1 3; "
    if user == "root":
        setup += 'exec sh -c "$@"'
    else:
        capability = "--inh-caps +dac_read_search --ambient-caps +dac_read_search"
        setup += f'exec setpriv --reuid {user} --regid nogroup --clear-groups {capability} sh -c "$@"'
    setup = f"{FORGET_OTHERS}; {setup}"
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", setup, "sh", script, "sh", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("device", "user", "status", "told"),
    [
        ("missing", "root", 15, "/dev/fuse is missing: run `modprobe fuse`, or give the container --device"),
        ("private", "nobody", 16, "no permission to open /dev/fuse"),
    ],
)
def test_no_fuse(home, device, user, status, told):
    done = in_a_namespace('"$1" mount "$2" "$3"', INSTALLED, home / "shards", home / "mnt", user=user, device=device)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"touchfs: {told}")
    assert done.stderr.count("\n") == 1


def test_no_permission_to_mount(speech, tmp_path):
    """As in a container without CAP_SYS_ADMIN, where even fusermount3 may not."""
    script = 'exec setpriv --bounding-set -sys_admin --inh-caps -all "$1" mount "$2" "$3"'
    done = in_a_namespace(script, INSTALLED, speech, tmp_path / "mnt")
    assert (done.returncode, done.stdout) == (16, "")
    assert "not permitted (in a container, give it --device /dev/fuse --cap-add SYS_ADMIN" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "mnt").exists()


@pytest.fixture
def home(speech):
    """A directory of user nobody, with the speech in it, where that user can get to."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        shutil.copytree(speech, home / "shards")
        shutil.chown(home, "nobody")
        home.chmod(0o755)
        yield home


def test_another_user_through_fusermount3(home):
    """As on a machine where the user is not root; --allow-other too, which needs a line in /etc/fuse.conf."""
    script = """
        set -e
        cd "$2"
        export XDG_CACHE_HOME=$PWD/cache
        "$1" mount shards mnt --state-dir state
        stat -c %U:%a mnt
        cmp mnt/shards/000000000/talks/monday.wav "$3"
        ! touch mnt/new
        ! "$1" umount mnt < mnt/shards/000000000/talks/monday.wav
        "$1" umount mnt
        "$1" mount shards mnt --state-dir state --allow-other || echo $?
        ls
    """
    done = in_a_namespace(script, INSTALLED, home, SPEECH / "wav" / "01.wav", user="nobody")
    assert done.returncode == 0, done.stderr
    told = f"shards is mounted at {home}/mnt (3 shards, 10 samples)\nnobody:755\n16\ncache\nshards\nstate\n"
    assert done.stdout == told
    assert "--allow-other and --allow-root need the line `user_allow_other` in /etc/fuse.conf" in done.stderr
    assert "in use by " in done.stderr


def test_what_mount_2_refuses_has_the_exit_status_of_mount_8(speech, tmp_path):
    """Here options that are longer than a page. The directory that was made is removed."""
    path = tmp_path / "mnt"
    assert "mount failed" in refused(32, speech, path, "--fsname", "x" * 5000)
    assert not path.exists()


def test_what_is_left_out_is_named(tmp_path):
    (tmp_path / "data").mkdir()
    for name, text in (("a.jsonl", '{"id": "a"}\n'), ("README.md", "#"), ("b" * 200, "")):
        (tmp_path / "data" / name).write_text(text)
    mnt = tmp_path / "mnt"
    done = touchfs("mount", tmp_path / "data", mnt)
    assert f"2 files left out: README.md (a Markdown text); …{'b' * 100} (not a shard))" in done.stdout
    assert [each["files"] for each in json.loads((mnt / ".touchfs/info").read_text())["left_out"]] == [1, 1]
    assert touchfs("umount", mnt).returncode == 0


def test_the_number_of_a_mount_whose_daemon_is_about_to_exit(monkeypatch):
    """The kernel gives it to the next mount at once, of which `umount` shall know, too, when its daemon has exited."""
    monkeypatch.setattr(mountpoint, "mounted_at", lambda path: SimpleNamespace(device="0:4242424"))
    monkeypatch.setattr(mountpoint, "_ENDING_SECONDS", 60.0)
    with socket.socket(socket.AF_UNIX) as before:
        before.bind(mountpoint._address("0:4242424"))
        threading.Timer(0.2, before.close).start()
        with mountpoint.liveness_socket("mnt"), mountpoint.daemon_of("0:4242424") as daemon:
            assert not mountpoint.wait_for_end(daemon, 0.1)
    with mountpoint.daemon_of("0:4242424") as ended:
        assert mountpoint.wait_for_end(ended, 0.1)
    with mountpoint.liveness_socket("mnt"):
        first = mountpoint.daemon_of("0:4242424")
    with mountpoint.liveness_socket("mnt"), first:
        assert mountpoint.wait_for_end(first, 60), "of the mount that had the number, not of this one"
