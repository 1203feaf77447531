"""The daemons that serve one tar to `small_files`: touchfs, touchfs of before, two floors, and the installed peers."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness import RATARMOUNT, processes_below

HERE = Path(__file__).parent
SPINNING_MICROSECONDS = 50
# A worker that never polls before it sleeps, of a touchfs of before.
WITHOUT_SPINNING = """
import importlib, importlib.util, sys
for name in ("loop", "spinning"):
    if importlib.util.find_spec(f"touchfs_mount.loop.{name}"):
        module = importlib.import_module(f"touchfs_mount.loop.{name}")
        if hasattr(module, "SPIN_NS"):
            module.SPIN_NS = 0
"""
START = "import sys; from touchfs.cli.main import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """A tar of `count` small members of `size` bytes, then big ones. Each small one has one header, so their places are
    arithmetic.
    """

    tar: Path
    count: int
    size: int
    big: tuple[str, ...]
    big_size: int

    FOLDER = 1000

    def name(self, number: int) -> str:
        return f"d{number // self.FOLDER:02d}/f{number:06d}.bin"

    @property
    def arithmetic(self) -> list[str]:
        """The arguments of the floors: COUNT SIZE FIRST STRIDE."""
        return [str(number) for number in (self.count, self.size, tarfile.BLOCKSIZE, self.size + tarfile.BLOCKSIZE)]


@dataclass(frozen=True, slots=True)
class Daemon:
    """One row: the command that serves the tar in the foreground, at the place of "@", and where its files are then:
    the small ones by number, and the big ones by name, if they are read.
    """

    name: str
    command: list[str]
    path: Callable[[int], str]
    big: Callable[[str], str] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def mounted(self, where: Path) -> Iterator[list[int]]:
        """Mount it there. Yields the daemon's processes."""
        where.mkdir(parents=True, exist_ok=True)
        below = where.stat().st_dev
        command = [str(where) if word == "@" else word for word in self.command]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(command, env=os.environ | self.environment, stderr=said, **quiet)
            try:
                deadline = time.monotonic() + 120
                while where.stat().st_dev == below:
                    if process.poll() is not None or time.monotonic() > deadline:
                        said.seek(0)
                        raise RuntimeError(f"{self.name} does not mount: {said.read().decode()}")
                    time.sleep(0.02)
                time.sleep(0.3)  # what it does after it has mounted is not what is measured
                yield list(processes_below(process.pid))
            finally:
                if os.path.ismount(where):
                    subprocess.run(["umount", where], check=True)
                else:
                    process.terminate()
                process.wait(60)


def _touchfs(name: str, files: SmallFiles, place: Path, code: Path | None, prepare: str = "") -> Daemon:
    """touchfs of this tree, or of another one at `code`. Each has its own indexes and states."""
    command = [sys.executable, "-P", "-c", prepare + START, "mount", "-f", str(files.tar), "@"]
    environment = {f"XDG_{kind}_HOME": str(place / kind / name) for kind in ("CACHE", "STATE")}
    if code is not None:
        environment["PYTHONPATH"] = f"{code}:{code / 'mount'}"
        look = [
            sys.executable,
            "-P",
            "-c",
            "import touchfs, touchfs_mount; print(touchfs.__file__, touchfs_mount.__file__)",
        ]
        found = subprocess.run(look, env=os.environ | environment, capture_output=True, text=True, check=True).stdout
        assert all(file.startswith(str(code)) for file in found.split()), found
    root = f"shards/{files.tar.stem}/"
    big = None if prepare else lambda name: root + name
    return Daemon(name, command, lambda number: root + files.name(number), big, environment)


@contextmanager
def checkout(reference: str) -> Iterator[Path]:
    """The tree of a git reference, as long as it is needed."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary).resolve() / "before"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", tree, reference], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


def _floors(files: SmallFiles, place: Path) -> Iterator[Daemon]:
    def path(number: int) -> str:
        return f"f{number:06d}"

    built = place / "null_daemon"
    subprocess.run(["gcc", "-O2", "-o", built, HERE / "null_daemon.c"], check=True)
    null = [str(built), "@", str(files.tar), *files.arithmetic]
    yield Daemon("null C daemon, spinning", [*null, str(SPINNING_MICROSECONDS)], path)
    yield Daemon("null C daemon, blocking", [*null, "0"], path)
    floor = [sys.executable, str(HERE / "bare_floor.py"), "@", str(files.tar), *files.arithmetic]
    yield Daemon("bare floor", floor, path)


def _find(program: str) -> str | None:
    """A program of this environment, or of the machine."""
    return shutil.which(program, path=sysconfig.get_path("scripts")) or shutil.which(program)


def _peers(files: SmallFiles, place: Path) -> Iterator[Daemon]:
    for name in (RATARMOUNT, "fuse-archive"):
        if program := _find(name):
            yield Daemon(Path(name).name, [program, "-f", str(files.tar), "@"], files.name, str)
    if (program := _find("squashfuse_ll")) and (make := _find("mksquashfs")):
        image = str(place / "small.squashfs")
        unpacked = place / "unpacked"
        unpacked.mkdir()
        subprocess.run(["tar", "-C", unpacked, "-xf", files.tar], check=True)
        plain = ["-noI", "-noD", "-noF", "-noX", "-no-xattrs", "-quiet", "-no-progress"]
        subprocess.run([make, unpacked, image, *plain], check=True)
        shutil.rmtree(unpacked)
        yield Daemon("squashfuse_ll", [program, "-f", image, "@"], files.name, str)


PEERS = ("ratarmount", "fuse-archive", "squashfuse_ll")


def all_daemons(files: SmallFiles, place: Path, before: Path | None) -> dict[str, Daemon]:
    """By name. A peer that is not installed is missing."""
    found = [_touchfs("touchfs", files, place, None)]
    if before is not None:
        found.append(_touchfs("before", files, place, before))
        found.append(_touchfs("before, blocking", files, place, before, WITHOUT_SPINNING))
    return {daemon.name: daemon for daemon in (*found, *_floors(files, place), *_peers(files, place))}
