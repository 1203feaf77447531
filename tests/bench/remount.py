"""A tar of 20,000 members that both know already, from the start of the command until a member can be opened: touchfs
and ratarmount, each with its own index.

What is compared takes turns, files in the page cache; printed are medians of the rounds. A second row has the processor
time of the command itself, without the daemon that it leaves behind; it depends less on what else the machine does.
Both run from compiled modules, as after an installation: a checkout in which Python may not write them compiles each
module at each start, which takes longer than all else.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import RATARMOUNT, TOUCHFS, add, at_most, interleaved, own_cache_and_state, report, run

MEMBERS, SIZE, ROUNDS = 20_000, 512, 9
MEMBER = "d03/f00777.bin"


def make_tar(path: Path) -> None:
    """Members of other names than samples have, in directories."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for number in range(MEMBERS):
            add(tar, f"d{number // 2000:02d}/f{number % 2000:05d}.bin", number.to_bytes(SIZE, "little"))


def mounting(
    command: list[str | Path], unmount: list[str | Path], where: Path, member: str, cpu: list[float]
) -> Callable[[], float]:
    """Seconds of a mount until a member is found. The command's seconds of processor time are appended to `cpu`."""

    def mount() -> float:
        where.mkdir(exist_ok=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        subprocess.run([*command, where], check=True, stdout=subprocess.DEVNULL)
        while not (where / member).exists():
            time.sleep(0.001)
        took = time.perf_counter() - begin
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
        subprocess.run([*unmount, where], check=True)
        while os.path.ismount(where):
            time.sleep(0.01)
        return took

    return mount


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        own_cache_and_state(root)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(root / "bytecode")
        tar, index = root / "small.tar", root / "ratar.sqlite"
        make_tar(tar)
        cpu: dict[str, list[float]] = {"touchfs": [], "ratarmount": []}
        ratarmount: list[str | Path] = [RATARMOUNT, "--index-file", index, tar]
        contestants = {
            "touchfs": mounting(
                [TOUCHFS, "mount", tar], [TOUCHFS, "umount"], root / "own", f"shards/small/{MEMBER}", cpu["touchfs"]
            ),
            "ratarmount": mounting(ratarmount, ["fusermount3", "-u"], root / "ratar", MEMBER, cpu["ratarmount"]),
        }
        for contestant in contestants.values():
            contestant()  # the first one indexes
        took = interleaved(contestants, ROUNDS)
        ours, theirs = took["touchfs"], took["ratarmount"]
        mine, other = (sorted(each)[len(each) // 2] for each in cpu.values())
        report(
            f"Mount a known tar of {MEMBERS:,} members: touchfs, ratarmount",
            [
                ("until it answers", f"{ours:.3f} s, {theirs:.3f} s: {ours / theirs:.2f}×", at_most(ours / theirs, 1)),
                ("processor time of the command", f"{mine:.3f} s, {other:.3f} s: {mine / other:.2f}×", ""),
            ],
        )


if __name__ == "__main__":
    run(main)
