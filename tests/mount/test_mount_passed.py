"""Mounts that are made before the daemon runs: `/dev/fd/N`, privileges dropped by mount.fuse3, and autofs."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from command import INSTALLED
from machine import run_on_machine
from mounts import is_mounted, touchfs
from waiting import wait_until

MONDAY = "shards/000000000/talks/monday.wav"

pytestmark = pytest.mark.usefixtures("as_root")


def test_a_descriptor_is_served(speech, tmp_path, descriptor):
    """In the background and in the foreground; it is not left to programs that the daemon runs."""
    passed, mnt = descriptor(tmp_path / "mnt"), tmp_path / "mnt"
    done = touchfs("mount", speech, f"/dev/fd/{passed}", pass_fds=[passed])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{speech} is mounted at {mnt} (3 shards, 10 samples)\n"
    assert (mnt / MONDAY).stat().st_size > 44
    assert json.loads(os.getxattr(mnt, "user.touchfs.info"))["samples"] == 10
    assert not os.path.lexists(mnt / ".touchfs")
    assert touchfs("umount", mnt).returncode == 0
    assert os.listdir(mnt) == []


@pytest.mark.parametrize("is_passed", [True, False], ids=["passed", "ours"])
def test_its_control_files_are_where_one_says(speech, tmp_path, descriptor, is_passed):
    """At a second descriptor, or in a directory where we can mount."""
    mnt, control = tmp_path / "mnt", tmp_path / "control"
    passed = [descriptor(mnt), *([descriptor(control, kind="touchfs-control")] if is_passed else [])]
    place = f"/dev/fd/{passed[1]}" if is_passed else control
    done = touchfs("mount", speech, f"/dev/fd/{passed[0]}", "--control", place, pass_fds=passed)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.readlink(mnt / ".touchfs") == str(control)
    iterator = mnt / ".touchfs/iterators" / ("passed" if is_passed else "ours")
    iterator.mkdir()
    assert (iterator / "next").read_text().startswith(f"{mnt}/")
    assert touchfs("umount", mnt).returncode == 0
    wait_until(lambda: not is_mounted(control))
    assert os.listdir(mnt) == []


def test_sigterm_unmounts_it(speech, tmp_path, descriptor):
    passed = descriptor(tmp_path / "mnt")
    command = [INSTALLED, "mount", "-f", speech, f"/dev/fd/{passed}"]
    with subprocess.Popen(command, pass_fds=[passed], stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        assert " is mounted at " in daemon.stdout.readline()
        assert (tmp_path / "mnt" / MONDAY).exists()
        daemon.terminate()
        assert daemon.wait() == 0
    assert not is_mounted(tmp_path / "mnt")


def test_descriptors_that_are_refused(speech, tmp_path, descriptor):
    done = touchfs("mount", speech, "/dev/fd/0", stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (10, "touchfs: /dev/fd/0: is no open /dev/fuse\n")
    passed = descriptor(tmp_path / "mnt", "allow_other")
    done = touchfs("mount", speech, f"/dev/fd/{passed}", pass_fds=[passed])
    assert done.returncode == 16
    assert "allow_other without default_permissions would show all files to all users" in done.stderr


def test_a_mount_in_another_namespace(machine, speech, tmp_path):
    """As a sidecar serves it: readers are elsewhere, and only they know the path."""
    script = """
        exec 3<>/dev/fuse
        mkdir -p mnt
        mkfifo served
        unshare --mount --propagation private sh -c '
            mount -i -t fuse.touchfs -o fd=3,rootmode=40000,user_id=0,group_id=0 theirs mnt
            exec 3>&-; echo > mounted; read line < served; ls mnt; umount mnt' &
        while ! [ -e mounted ]; do sleep 0.01; done
        touchfs mount "$1" /dev/fd/3 || echo $?
        touchfs mount "$1" /dev/fd/3 --path-prefix /data
        echo > served
        wait
    """
    done = machine.run(tmp_path, script, speech)
    assert (
        done.stderr == "touchfs: /dev/fd/3: no mount here belongs to this descriptor: --path-prefix says where it is\n"
    )
    first, second, *names = done.stdout.splitlines()
    assert (first, second) == ("2", f"{speech} is mounted at /dev/fd/3 (3 shards, 10 samples)")
    assert "shards" in names


def test_files_of_a_mount_in_another_namespace_are_for_those_who_may_read_the_data(machine, speech):
    """Its daemon cannot see whether others are let in."""
    script = """
        umask 022
        exec 3<>/dev/fuse
        mount -i -t fuse.touchfs \\
            -o fd=3,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions theirs mnt
        unshare --mount --propagation private sh -c \\
            'umount -l mnt; exec touchfs mount shards /dev/fd/3 --path-prefix "$PWD/mnt"'
        exec 3>&-
        for shard in 000000000 000000001; do
            file=$(find mnt/shards/$shard -name "*.wav" -print -quit)
            setpriv --reuid=65534 --regid=65534 --clear-groups head -c 4 "$file"
        done
        umount mnt
    """
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        (place / "mnt").mkdir()
        shutil.copytree(speech, place / "shards", ignore=shutil.ignore_patterns("data.list"))
        for path in (place / "shards", *(place / "shards").rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o600 if path.parent.name == "000000001" else 0o644)
        done = machine.run(place, script)
    assert done.stdout.endswith("RIFF")
    assert (done.stderr.count("\n"), done.stderr.endswith("Permission denied\n")) == (1, True), done.stderr


def test_privileges_that_mount_fuse3_drops(machine, speech, tmp_path):
    """The daemon has no capability."""
    script = f"""
        mkdir mnt
        mount -t fuse.touchfs -o ro,allow_other,default_permissions,drop_privileges "$1" mnt
        stat -c %a mnt/{MONDAY}
        pid=$(python3 -S -c 'import json, os; print(json.loads(os.getxattr("mnt", "user.touchfs.info"))["pid"])')
        grep -E '^(CapEff|NoNewPrivs)' /proc/$pid/status
        umount mnt
    """
    done = machine.run(tmp_path, script, speech)
    assert (done.returncode, done.stderr) == (0, "")
    shown = f"{speech} is mounted at {tmp_path}/mnt (3 shards, 10 samples)\n444\n"
    assert done.stdout == f"{shown}CapEff:\t{0:016d}\nNoNewPrivs:\t1\n"


def test_another_user_serves_it(speech, tmp_path, descriptor):
    """As `setuid=nobody` of mount.fuse3 has it, but with the right to read our Python wherever it is."""
    passed = descriptor(tmp_path / "mnt", "allow_other", "default_permissions")
    capability = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    guest = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *capability]
    command = [*guest, INSTALLED, speech, f"/dev/fd/{passed}", "-o", "ro,allow_other,dev,suid"]
    done = subprocess.run(command, pass_fds=[passed], capture_output=True, text=True, check=False)
    assert (done.returncode, f" is mounted at {tmp_path}/mnt (" in done.stdout) == (0, True), done.stderr
    pid = json.loads(os.getxattr(tmp_path / "mnt", "user.touchfs.info"))["pid"]
    assert "Uid:\t65534\t65534" in Path(f"/proc/{pid}/status").read_text()
    assert (tmp_path / "mnt" / MONDAY).read_bytes()[:4] == b"RIFF"
    subprocess.run(["umount", tmp_path / "mnt"], check=True)


AUTOMOUNT = """
    mount -t tmpfs none /run
    ln -s touchfs /usr/sbin/mount.touchfs
    mkdir auto direct
    printf '%s\\n' "$PWD/auto /etc/auto.speech --timeout=1" "/- /etc/auto.direct --timeout=1" > /etc/auto.master
    printf '%s\\n' "ours -fstype=touchfs,ro :$1" \\
        "data -fstype=bind :$1" "chained -fstype=touchfs,ro :$PWD/auto/data" \\
        "missing -fstype=touchfs :$1/missing" > /etc/auto.speech
    printf '%s\\n' "$PWD/direct -fstype=touchfs,workers=2 :$1" > /etc/auto.direct
    automount -f -v --pid-file "$PWD/pid" > log 2>&1 &
    while ! grep -q "$PWD/direct " /proc/self/mountinfo; do sleep 0.05; done
    for point in auto/ours auto/chained direct; do
        # It is in use, so it does not expire. Automount does nothing for its own process group.
        timeout 60 sh -c 'exec 9< "$1/$2" && wc -c <&9 && findmnt -nro FSTYPE "$1"' sh "$PWD/$point" "$2"
    done
    timeout 60 ls auto/missing 2>&1
    grep -o '>> touchfs: .*' log
    while grep -q " $PWD/.* fuse.touchfs" /proc/self/mountinfo; do sleep 0.1; done
    findmnt -nro FSTYPE "$PWD/direct"
    kill $!
    wait
"""


def test_autofs_mounts_and_expires(speech, tmp_path):
    """Debian's automount with an indirect and a direct map. A mount that expired leaves the autofs in its place, and a
    dataset may be on autofs, too.
    """
    done = run_on_machine(tmp_path, AUTOMOUNT, speech, MONDAY)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + Path(tmp_path / "log").read_text()
    size, *shown = done.stdout.splitlines()
    assert int(size) > 44
    assert shown == [
        *("fuse.touchfs", size, "fuse.touchfs", size, "autofs", "fuse.touchfs"),
        "ls: cannot access 'auto/missing': No such file or directory",
        f">> touchfs: {speech}/missing: no such file or directory",
        "autofs",
    ]
    wait_until(lambda: not [line for line in _commands() if os.fspath(tmp_path) in line])


def _commands() -> list[str]:
    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "touchfs" in line]
