"""mount(8), /etc/fstab and mount.fuse3 mount datasets: the real ones, in a mount namespace of their own."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from command import INSTALLED, TOUCHFS
from machine import run_on_machine
from mounts import is_mounted, touchfs
from touchfs_mount.messages.requests import Opcode
from variants import with_variants

MONDAY = "shards/000000000/talks/monday.wav"
TYPES = ("touchfs", "fuse.touchfs")
# What /etc/fstab may say, for the system and for us.
WORDS = (
    "rw,user,exec,nofail,_netdev,noauto,x-systemd.automount,x-systemd.idle-timeout=10min,relatime,nodiratime,defaults"
)

pytestmark = pytest.mark.usefixtures("as_root")


@pytest.fixture
def place(tmp_path, speech):
    """A directory with the speech as `shards`, and an empty `mnt`."""
    (tmp_path / "shards").symlink_to(speech)
    (tmp_path / "mnt").mkdir()
    return tmp_path


def output(run, place, script, *arguments):
    """What a script prints that succeeds."""
    done = run(place, f"set -e\n{script}", *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", TYPES)
def test_mount_takes_words_of_fstab_and_our_options(machine, place, kind):
    script = f"""
        mount -t {kind} -o {WORDS},noexec,ro,fsname=a,uid=12,dmask=022,fmask=0477,log-level=debug shards mnt
        findmnt -nro FSTYPE,SOURCE,OPTIONS mnt
        stat -c '%u %a' mnt mnt/{MONDAY}
        umount mnt
        mount -t {kind} -o "fsname=\\"a,b\\",path_prefix=x\\,y,rw,control_mode=066" shards mnt
        findmnt -nro SOURCE,OPTIONS mnt
        mkdir mnt/.touchfs/iterators/{kind}
        cat mnt/.touchfs/iterators/{kind}/next
        umount mnt
    """
    shown = output(machine.run, place, script).splitlines()
    assert f" is mounted at {place}/mnt (3 shards, 10 samples)" in shown[0]
    fixed = "ro,nosuid,nodev,noexec,noatime,user_id=0,group_id=0,default_permissions"
    assert shown[1:4] == [f"fuse.touchfs a {fixed}", "12 755", "12 0"]
    assert shown[-2] == f"a,b {fixed.replace('noexec,', '')}"  # data are read-only whatever it says
    assert shown[-1].startswith("x,y/")


def test_the_recipe_for_logrotate_reaches_mounts_of_every_form(machine, place):
    """The log is moved away, then the recipe of docs/operating.md runs, then a worker is killed, which is logged."""
    page = (Path(__file__).parent.parent.parent / "docs/operating.md").read_text()
    recipe = re.findall(r"^    postrotate\n(.*?)^    endscript$", page, re.MULTILINE | re.DOTALL)[0]
    script = f"""
        mkdir -p log old a b c d
        touchfs mount shards a --log-file log/a
        touchfs shards b -o log_file={place}/log/b
        mount -t touchfs -o log_file={place}/log/c shards c
        echo "{place}/shards {place}/d fuse.touchfs noauto,log_file={place}/log/d 0 0" > /etc/fstab
        mount d
        mv log/* old
        {recipe}
        for name in a b c d; do
            until test -e log/$name; do sleep 0.01; done
        done
        umount a b c d
        ls log old
    """
    assert output(machine.run, place, script).split()[-10:] == ["log:", *"abcd", "old:", *"abcd"]


def test_doctor_knows_the_helper(place):
    script = """
        doctor() { touchfs doctor | grep mount.touchfs; }
        doctor
        touchfs setup helper > /dev/null; doctor
        ln -sf /missing/touchfs /sbin/mount.touchfs; doctor
    """
    advice = "for `mount -t touchfs` and /etc/fstab, as root: touchfs setup helper"
    missing, good, dangling = output(run_on_machine, place, script).splitlines()
    assert missing.split(maxsplit=2) == ["note", "mount.touchfs", f"is not installed: {advice}"]
    assert good.split(maxsplit=2) == ["ok", "mount.touchfs", f"/sbin/mount.touchfs runs {os.path.realpath(INSTALLED)}"]
    assert dangling.split(maxsplit=2)[2] == f"points to a program that cannot be run: {advice}"


def test_fstab(machine, place, speech):
    """Lines with spaces, by one name and all at once; findmnt finds no fault with them."""
    (place / "a shard").symlink_to("shards/000000000")
    fstab = rf"""
{place}/shards {place}/mnt fuse.touchfs ro,nofail,x-systemd.requires-mounts-for=/data,allow_other 0 0
{place}/a\040shard {place}/an\040other touchfs ro,_netdev,workers=2,nofail 0 0
{place}/shards {place}/later touchfs ro,noauto,user 0 0
"""
    script = """
        mkdir 'an other' later
        printf %s "$1" > /etc/fstab
        findmnt --verify 2>&1
        mount -a
        mount later
        for point in 'an other' later mnt; do findmnt -nro TARGET,SOURCE "$point"; umount "$point"; done
    """
    shown = output(machine.run, place, script, fstab)
    assert "0 parse errors, 0 errors" in shown
    assert shown.endswith(
        rf"""
{place}/an\x20other {speech}/000000000
{place}/later {speech}
{place}/mnt {speech}
"""
    )


@pytest.mark.parametrize("kind", with_variants(TYPES, lambda kind: kind == TYPES[0]))
def test_the_exit_status_passes_through_mount(machine, place, kind):
    (place / "full" / "file").mkdir(parents=True)
    (place / "damaged.list").write_text("one\n")
    cases = {
        "shards mnt -o workrs=2": (2, "-o workrs is unknown: did you mean workers?"),
        "shards mnt -o workers=0": (2, "Invalid value for '--workers': 0"),
        "shards full": (10, "is not empty (it holds 'file')"),
        "missing mnt": (11, "missing: no such file or directory"),
        "damaged.list mnt": (13, "line 1 is not"),
    }
    script = 'while read -r line; do mount -t "$1" $line; echo " status $?"; done'
    done = machine.run(place, f"{{ {script}; }} 2>&1", kind, input="\n".join(cases) + "\n")
    *shown, rest = re.split(r" status (\d+)\n", done.stdout)
    assert (list(map(int, shown[1::2])), rest) == ([status for status, _ in cases.values()], "")
    for (line, (_, reason)), text in zip(cases.items(), shown[::2], strict=True):
        assert (reason in text, text.count("\n")) == (True, 1), line
    assert not is_mounted(place / "mnt")


def test_flags_of_helpers(machine, place):
    """-f checks only; -n, -s, -v have no effect; -N mounts in another namespace, and nowhere else."""
    script = """
        mount -f -n -s -v -t touchfs -o ro,workers=2 shards mnt
        mount.touchfs shards mnt -sfnv -t fuse.touchfs -o ro
        ! mount -f -t touchfs -o nonsense=1 shards mnt 2> /dev/null
        ! mount.touchfs shards mnt -t touchfs.other 2> message
        grep -q 'the type touchfs.other is not supported' message
        findmnt mnt || echo none
        mkfifo end; exec 3<>end
        inside='echo > inside; read end < end; findmnt -no FSTYPE mnt; umount mnt'
        unshare --mount --propagation private sh -c "$inside" 3>&- &
        while ! [ -e inside ]; do sleep 0.01; done
        ln -s "$1" mount.touchfs  # it becomes a new process there
        "$PWD/mount.touchfs" shards mnt -N /proc/$!/ns/mnt
        findmnt mnt || echo none
        echo >&3
        wait
    """
    shown = output(machine.run, place, script, INSTALLED).splitlines()
    assert shown[0] == "none"
    assert " is mounted at " in shown[1]
    assert shown[2:] == ["none", "fuse.touchfs"]


def test_only_a_call_of_mount_is_a_mount(place):
    """`touchfs SOURCE DIR -o OPTIONS`, and of a source with the name of a command `./NAME`."""
    (place / "mount").symlink_to("shards")
    for source in ("shards", "./mount"):
        done = touchfs(source, "mnt", "-o", "rw,dev,suid", cwd=place)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{source} is mounted at {place}/mnt (3 shards, 10 samples)\n"
        assert touchfs("umount", "mnt", cwd=place).returncode == 0
    for arguments in (
        ("shards", "mnt"),
        ("mount", "mnt", "-o", "rw"),
        ("shards", "mnt", "-o"),
        ("shards", "mnt", "-o", "rw", "more"),
        ("shards", "mnt", "--workers", "2"),
    ):
        done = touchfs(*arguments, cwd=place)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert not is_mounted(place / "mnt")


def test_allow_root_lets_root_in_and_nobody_else(place):
    assert touchfs("mount", "-o", "allow_root", "shards", "mnt", cwd=place).returncode == 0
    guest = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all,+dac_read_search"]
    look = ["--ambient-caps=-all,+dac_read_search", "ls", place / "mnt"]
    try:
        assert (place / "mnt" / MONDAY).exists()
        done = subprocess.run([*guest, *look], capture_output=True, text=True, check=False)
        assert "Permission denied" in done.stderr
    finally:
        assert touchfs("umount", place / "mnt").returncode == 0


def test_allow_root_of_a_user_keeps_out_other_users(speech):
    """The kernel lets in all or none beside the one who mounts: modes keep them out, also of the control files."""
    script = f"""
        as() {{ setpriv --reuid=$1 --regid=$1 --clear-groups "${{@:2}}"; }}
        echo user_allow_other > /etc/fuse.conf
        mknod -m 666 fuse c 10 229  # that of the machine may be for root alone
        mount --bind fuse /dev/fuse
        mkdir home mnt control
        chown 65534 home mnt control
        capability='--inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search'
        options="--allow-root --control control"
        as 65534 $capability env -i PATH="$PATH" HOME="$PWD/home" touchfs mount shards mnt $options > /dev/null
        for user in 0 65534 4242; do
            for file in mnt/{MONDAY} mnt/.touchfs/info control/info; do
                as $user cat $file > /dev/null 2>> refused && echo $user reads $file
            done
        done
        as 4242 ls mnt control 2>> refused || grep -c 'Permission denied' refused
        umount mnt
    """
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)
        shutil.copytree(speech, place / "shards", ignore=shutil.ignore_patterns("data.list"))
        shown = output(run_on_machine, place, script).splitlines()
    files = (f"mnt/{MONDAY}", "mnt/.touchfs/info", "control/info")
    reads = [f"{user} reads {file}" for user in (0, 65534) for file in files]
    assert shown == [*reads, "5"]


def test_a_trace_shows_every_request(place):
    command = [TOUCHFS, "mount", "-d", "shards", "mnt"]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as daemon:
        assert " is mounted at " in daemon.stdout.readline()
        (place / "mnt" / MONDAY).read_bytes()
        assert touchfs("umount", "mnt", cwd=place).returncode == 0
        _, trace = daemon.communicate()
    assert daemon.returncode == 0
    for opcode in (Opcode.LOOKUP, Opcode.READ, Opcode.FLUSH):
        assert f" {opcode.name} unique=" in trace


def test_options_beside_o_come_after_it_and_env_sets_the_environment(place):
    options = "workers=3,env.XDG_STATE_HOME=/dev/null/state,control=none"
    done = touchfs("mount", "shards", "mnt", "--workers=2", "-o", options, cwd=place)
    assert done.returncode == 0, done.stderr
    info = json.loads(os.getxattr(place / "mnt", "user.touchfs.info"))
    assert touchfs("umount", "mnt", cwd=place).returncode == 0
    assert (info["workers"], info["log"]) == (2, "/dev/null")


@pytest.mark.parametrize(
    ("user", "home", "setting"),
    [
        *(("root", "/root", ["HOME="]), ("4242", "/nonexistent", [])),
        *(
            pytest.param(*each, marks=pytest.mark.variant)
            for each in (("root", "/root", []), ("4242", "/nonexistent", ["HOME="]))
        ),
    ],
)
def test_without_a_home_its_directories_are_those_of_the_user(tmp_path, user, home, setting):
    """mount(8) empties HOME, and a service has none. A user without an entry in passwd has no home at all."""
    capability = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    command = ["setpriv", f"--reuid={user}", *capability, "env", "-i", "PATH=/usr/bin", *setting, INSTALLED, "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    indexes = next(line for line in done.stdout.splitlines() if "indexes" in line)
    assert f"{home}/.cache/touchfs/index" in indexes or "/ cannot be written" in indexes
    assert os.listdir(tmp_path) == []
