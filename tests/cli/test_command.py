"""The command that tests run, a fork of a server's, behaves as the installed one. Each is run as both here."""

import os
import re
import shutil
import signal
import socket
import subprocess

import pytest
from command import INSTALLED, SERVER, TOUCHFS, in_one_process
from interleaved_tars import make_wds_tar
from processes import children, runs
from speech import SPEECH
from waiting import wait_until

from touchfs.cli.main import COMMANDS

# What is run for each command, in a directory with `shards`, `t.tar` and `data.jsonl`.
RUN = {
    "cat": [["cat", "shards:shards/000000000/numbers.txt"]],
    "convert": [["convert", "shards", "tars", "--to", "tar"]],
    "cp": [["cp", "shards:shards/000000000/numbers.wav", "copy.wav"]],
    "demo": [["demo", "demo"], ["demo", "demo"]],
    "doctor": [["doctor", "--state-dir"]],
    "image": [["image", "t.tar", "-o", "x.erofs"], ["image", "t.tar", "-o", "x.erofs"]],
    "index": [["index", "shards"], ["index", "shards"]],
    "info": [["info", "shards"], ["info", "shards", "--format", "json"]],
    "interleave": [["interleave", "t.tar", "items"]],
    "iterate": [["iterate", "shards", "--shuffle", "1"]],
    "iterator": [
        ["iterator", "create", "shards", "train"],
        ["iterator", "next", "shards", "train"],
        ["iterator", "token", "shards", "train"],
    ],
    "ls": [["ls", "shards"], ["ls", "-l", "shards:shards/000000000"], ["ls", "no", "such"]],
    "manifest": [["manifest", "shards", "--kind", "filelist"]],
    "meta": [["meta", "get", "shards"]],
    "mount": [["mount", "shards", "mnt"], ["mount", "shards", "mnt"]],
    "pack": [["pack", "tar", "data.jsonl", "packed"]],
    "prefetch": [["prefetch", "shards"]],
    "reload": [["mount", "shards", "mnt"], ["reload", "mnt"]],
    "serve": [["serve", "shards", "--http", "nonsense"]],
    "setup": [
        ["setup", "completion", "bash"],
        ["setup", "helper", "--directory", "nowhere"],
        ["setup", "man", "pages"],
    ],
    "show": [["show", "shards:shards/000000000/numbers.wav"]],
    "stat": [["stat", "shards:shards/000000000/numbers.wav"]],
    "status": [["mount", "shards", "mnt"], ["status", "mnt"], ["status", "--stats", "mnt"]],
    "storage": [["index", "shards"], ["storage", "ls"]],
    "umount": [["mount", "shards", "mnt"], ["umount", "mnt"], ["umount", "mnt"]],
    "verify": [["verify", "--write", "shards"], ["verify", "--write", "nothing"], ["verify", "shards"]],
}

# Process ids, times, and identifiers.
VARYING = re.compile(r"[0-9a-f]{8,}|[\d.]+| [mµ]?s\b| +")


# Those that only read, that write, and that leave a daemon or ask it. All others are alike.
FIRST = ("iterator", "ls", "umount")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.variant) for name in COMMANDS]
)
def test_each_command_does_what_the_installed_one_does(shards, tmp_path, name):
    shown = []
    place = tmp_path / "place"  # the same one, as names of it are shown
    for program in (INSTALLED, TOUCHFS):
        shutil.copytree(shards, place / "shards")
        make_wds_tar(place / "t.tar", [])
        (place / "data.jsonl").symlink_to(SPEECH / "speech.jsonl")
        (place / "wav").symlink_to(SPEECH / "wav")
        environment = os.environ | {f"XDG_{kind}_HOME": str(place / kind) for kind in ("CACHE", "STATE")}
        try:
            for arguments in RUN[name]:
                told = arguments if name == "index" else in_one_process(*arguments)  # pools are alike
                done = subprocess.run(
                    [program, *told], cwd=place, env=environment, capture_output=True, text=True, check=False
                )
                shown.append((done.returncode, *(VARYING.sub("", text) for text in (done.stdout, done.stderr))))
            made = sorted(str(path.relative_to(place)) for path in place.rglob("*") if "mnt" not in path.parts)
            shown.append(VARYING.sub("", " ".join(made)))
        finally:
            if os.path.ismount(place / "mnt"):
                subprocess.run(["fusermount3", "-u", place / "mnt"], check=True)
                wait_until(lambda: not os.path.exists(place / "mnt"))  # the daemon removes what it has made
        shutil.rmtree(place)
    assert shown[len(shown) // 2 :] == shown[: len(shown) // 2]


def alike(*arguments, script='exec "$@"', programs=(INSTALLED, TOUCHFS), **how):
    """Run both in a shell, and compare what they write and their status."""
    shown = []
    for program in programs:
        command = ["bash", "-c", script, "bash", program, *arguments]
        done = subprocess.run(command, capture_output=True, check=False, **how)
        shown.append((done.returncode, done.stdout, done.stderr))
    assert shown[1] == shown[0]


def test_the_environment(shards, tmp_path):
    alike("info", shards, env={"HOME": str(tmp_path / "nowhere"), "PATH": os.environ["PATH"], "TZ": "Asia/Tokyo"})
    alike("ls", shards, env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"})


@pytest.mark.parametrize(
    "script",
    [
        '"$@" <&- >&- 2>&-',
        'umask 027; "$@" > /dev/null; "$1" man pages; stat -c %a pages/*',
        *(
            pytest.param(script, marks=pytest.mark.variant)
            for script in (
                *('"$@" <&-', '"$@" >&-', '"$@" > /dev/full', "ulimit -f 0", "ulimit -n 20", "trap '' INT PIPE"),
                'mkdir gone; cd gone; rmdir ../gone; "$@"',
            )
        ),
    ],
)
def test_what_a_process_is_born_with(shards, tmp_path, script):
    alike("ls", "-l", f"{shards}:shards", script=script if '"$@"' in script else f'{script}; exec "$@"', cwd=tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.variant)])
def test_a_signal(shards, number):
    """It comes to the command when the launcher has been told which one that is, so the command does not end before."""
    ends = []
    for program in (INSTALLED, TOUCHFS):
        command = [program, "iterate", shards, "--format", "tar", "--repeat", "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.read(1)
            process.send_signal(number)
            _, told = process.communicate(timeout=60)
            ends.append((process.returncode, told))
    assert ends[1] == ends[0]


def test_it_is_a_fork_which_ends_with_what_asked_for_it(shards):
    others = set(children(SERVER))  # daemons of other tests, perhaps
    with subprocess.Popen([TOUCHFS, "iterate", shards, "--format", "tar"], stdout=subprocess.PIPE) as process:
        process.stdout.read(1)
        (fork,) = set(children(SERVER)) - others
        process.kill()
        wait_until(lambda: not runs(fork))


def test_one_that_is_killed_before_it_asks(shards):
    """The server serves the others."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.connect(os.fspath(TOUCHFS.with_name("large")))
    assert subprocess.run([TOUCHFS, "ls", shards], stdout=subprocess.DEVNULL, check=False).returncode == 0


PYTHONS = INSTALLED.with_name("python"), TOUCHFS.with_name("python")
POOL = """
import multiprocessing
def double(x): return 2 * x
if __name__ == "__main__":
    with multiprocessing.get_context("spawn" if "__file__" in globals() else "fork").Pool(1) as pool:
        print(pool.map(double, [1, 2]))
"""


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print(__name__, sys.argv, sys.orig_argv[1:], sys.path, globals().get('__file__'))",
        "import atexit, sys; atexit.register(print, 'at its end'); print(end='begun,'); sys.exit('failed')",
        "def fail(): raise ValueError('no')\nfail()",
        *(pytest.param(code, marks=pytest.mark.variant) for code in ("def f(:", "raise KeyboardInterrupt", POOL)),
    ],
)
def test_python_runs_a_program(tmp_path, code):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/program.py").write_text(code)
    (tmp_path / "link.py").symlink_to("elsewhere/program.py")
    for arguments in (["-c", code], ["elsewhere/program.py"], ["link.py"]):
        alike(*arguments, "a", "--b", programs=PYTHONS, cwd=tmp_path)


@pytest.mark.parametrize("arguments", [[], ["-"], ["-S", "-c", "print(1)"], ["nothing.py"], ["-c"]])
def test_python_is_the_installed_one_for_all_else(arguments):
    alike(*arguments, programs=PYTHONS, input=b"print(__name__)")


def test_python_has_what_takes_long_to_import():
    python = TOUCHFS.with_name("python")
    assert subprocess.run([python, "-c", "import sys; sys.modules['torch']"], check=False).returncode == 0
