"""Random open+read+close of 32 KB recordings: touchfs, touchfs on trio's loop, ratarmount on a tar of the same files.

All are mounted at once and take turns; the backing files are in the page cache, and the kernel forgets what it knows of
the mounts before each turn.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from harness import (
    TOUCHFS,
    at_least,
    interleaved,
    make_shards,
    mounted,
    open_read_close,
    own_cache_and_state,
    report,
    run,
)

SAMPLES, AUDIO_SIZE, COUNT, ROUNDS = 4_000, 32_000, 8_000, 7


def make_tar(source: Path, tar: Path) -> None:
    """The recordings of a mount, under the same names, as GNU tar would store them."""
    with tarfile.open(tar, "w", format=tarfile.GNU_FORMAT) as file:
        for wav in sorted((source / "shards/000000000").glob("*.wav")):
            data = wav.read_bytes()
            member = tarfile.TarInfo(f"shards/000000000/{wav.name}")
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        root = Path(temporary)
        own_cache_and_state(root)
        make_shards(root / "data", 1, SAMPLES, AUDIO_SIZE, sparse=False)
        subprocess.run([TOUCHFS, "index", root / "data"], check=True, stdout=subprocess.DEVNULL)
        mounts = {
            "touchfs": stack.enter_context(mounted(root / "data", root / "own")).path,
            "touchfs --workers 2": stack.enter_context(mounted(root / "data", root / "two", "--workers", "2")).path,
            "touchfs --loop trio": stack.enter_context(mounted(root / "data", root / "trio", "--loop", "trio")).path,
        }
        make_tar(mounts["touchfs"], root / "data.tar")
        (root / "ratar").mkdir()
        ratarmount = str(Path(sys.executable).with_name("ratarmount"))
        subprocess.run([ratarmount, root / "data.tar", root / "ratar"], check=True, stdout=subprocess.DEVNULL)
        stack.callback(subprocess.run, ["fusermount3", "-u", root / "ratar"], check=True)
        mounts["ratarmount"] = root / "ratar"
        while not (root / "ratar/shards").exists():
            time.sleep(0.05)

        for threads in (1, 4):

            def contestant(where: Path, threads: int = threads):
                paths = [f"{where}/shards/000000000/s00000-{i:06d}.wav" for i in range(SAMPLES)]

                def run() -> float:
                    # Names and pages of all mounts are forgotten; then the backing files are read in again.
                    Path("/proc/sys/vm/drop_caches").write_text("3\n")
                    for backing in (root / "data/000000000/audio.bin", root / "data.tar"):
                        backing.read_bytes()
                    return COUNT / open_read_close(paths, AUDIO_SIZE + 44, COUNT, threads)

                return run

            rates = interleaved({name: contestant(where) for name, where in mounts.items()}, ROUNDS)
            ours = rates["touchfs"]
            wanted = {
                name: ", " + at_least(ours / rates[name], 2, "x")
                for name in ("touchfs --loop trio", "ratarmount")
                if threads == 4
            }
            report(
                f"Random open+read+close of 32 KB files, {threads} thread{'s' * (threads > 1)}",
                [
                    (name, f"{rate:,.0f} files/s", f"touchfs is {ours / rate:.2f}x{wanted.get(name, '')}")
                    for name, rate in rates.items()
                ],
            )


if __name__ == "__main__":
    run(main)
