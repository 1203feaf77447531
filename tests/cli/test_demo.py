"""`make demo` verifies what it copies out, and leaves nothing behind, even when it is interrupted.

`touchfs demo` writes data of each kind, and prints commands that work.
"""

import filecmp
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import TOUCHFS

import touchfs

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def demo(tmp_path_factory):
    """Starts the demo in a process group of its own, with a TMPDIR that must be empty at the end.

    It is short: Python's pools of processes have sockets there, whose names have at most 107 bytes.
    """
    tmp_path = tmp_path_factory.mktemp("demo")
    environment = os.environ | {"TMPDIR": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", ROOT / "tests/demo.sh"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    yield start
    assert list(tmp_path.iterdir()) == []
    # Others mount at names that may be no text.
    assert os.fsencode(tmp_path) not in Path("/proc/self/mountinfo").read_bytes()


def interrupt(process):
    """Returns its status. 1: Python itself ends with it if it is interrupted before it has started."""
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=300)
    return process.returncode


def test_the_demo(demo):
    process = demo()
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert "recording 1.296 s, segment 0.654 s: the same samples" in told


@pytest.mark.parametrize("command", ["touchfs mount", "find"])
def test_an_interrupted_demo(demo, command):
    """While it mounts, and while it is mounted."""
    status = 0
    while status == 0:  # it had ended before
        process = demo()
        assert any(line.startswith(f"$ {command} ") for line in process.stdout)
        status = interrupt(process)
    assert status in (1, 130)


@pytest.mark.variant
def test_a_demo_that_is_interrupted_at_any_time(demo):
    choose = random.Random(1)
    for lines in choose.sample(range(80), 4):
        process = demo()
        for _ in range(lines):
            process.stdout.readline()
        time.sleep(choose.uniform(0, 0.2))
        assert interrupt(process) in (0, 1, 130)


def test_the_commands_that_it_prints_can_be_typed(text, here):
    told = text("demo", "my data")
    first, *lines = told.splitlines()
    assert first == "my data: arrow, nemo, parquet, touchnet, webdataset, whisper"
    script = "\n".join(line.strip() for line in lines if line.startswith("  "))
    environment = os.environ | {"PATH": f"{TOUCHFS.parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-ec", script], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"caption": "a green square"' in done.stdout
    assert done.stdout.endswith("This is a talk about shards.talks/\ncircle/\nsquare/\n")


def test_each_dataset_has_its_samples(text, here):
    text("demo", "data")
    pictures = touchfs.open("data/webdataset")
    assert (len(pictures), sorted(pictures[0]), len(pictures.where("score > 0.5"))) == (60, ["cls", "json", "png"], 27)
    assert [len(touchfs.open(f"data/{kind}")) for kind in ("parquet", "arrow", "whisper", "touchnet")] == [60, 60, 2, 2]
    talks = [
        touchfs.open("data/nemo", audio_root="data/nemo"),
        touchfs.open("data/whisper"),
        touchfs.open("data/touchnet"),
    ]
    texts = [
        "Good morning.",
        "This is a talk about shards.",
        "Hello again.",
        "Today we read one sentence of it.",
        "Goodbye.",
    ]
    for each in talks:
        assert [sample.text for sample in each.segments()] == texts


def test_the_content_is_the_same_each_time(text, here):
    (here / "second").mkdir()
    text("demo", "first")
    text("demo", "second")
    names = [str(path.relative_to("first")) for path in Path("first").rglob("*") if path.is_file()]
    assert filecmp.cmpfiles("first", "second", names, shallow=False) == (names, [], [])


def test_a_directory_that_is_not_empty_is_refused(touchfs, here):
    (here / "data").mkdir()
    (here / "data/mine").touch()
    done = touchfs("demo", "data")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"touchfs: data: already exists: remove it, or choose another path\n"
    assert [str(path) for path in Path().rglob("*")] == ["data", "data/mine"]


def test_without_extras_it_writes_what_needs_none_and_shows_it_without_a_mount(here):
    code = (
        "import sys; sys.modules['pyarrow'] = sys.modules['pyfuse3'] = None; from touchfs.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "demo", "data"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "data: nemo, touchnet, webdataset, whisper\npip install 'touchfs-shards[arrow]', and "
    )
    assert "mount" not in done.stdout and "touchfs ls data/webdataset:shards/train-000000\n" in done.stdout
