"""A tar of 20,000 members (10,000 pairs of a 1 s WAV and its JSON), and 2,000,000 JSON lines: touchfs and its peers.

    index      the offset index of Lhotse, byte for byte: `touchfs index tar|jsonl` in the library, and Lhotse's own
    mount      of the tar, until a member can be read: touchfs and ratarmount, with no index there before, and with
    read       random members: the mounts by path, Python's `tarfile` by name, Lhotse's reader by number (both members)

What is compared takes turns in one process, files in the page cache; printed are medians of the rounds.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
import tarfile
import tempfile
import time
import wave
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from harness import (
    RATARMOUNT,
    TOUCHFS,
    add,
    at_least,
    interleaved,
    open_read_close,
    own_cache_and_state,
    report,
    run,
    seconds_of,
)
from lhotse.indexing import IndexedTarReader, create_jsonl_index, create_tar_index

from touchfs.containers.tar.layout.grouping import Dialect
from touchfs.peers.write import write_index

PAIRS, LINES, RATE, READS = 10_000, 2_000_000, 16_000, 3_000
MANIFEST = {
    "sources": [{"type": "shar", "channels": [0], "source": ""}],
    "sampling_rate": RATE,
    "num_samples": RATE,
    "duration": 1.0,
    "channel_ids": [0],
}


def make_tar(path: Path) -> None:
    noise = np.random.default_rng(0).integers(-3000, 3000, RATE, np.int16).tobytes()
    sound = io.BytesIO()
    with wave.open(sound, "wb") as wav:
        wav.setparams((1, 2, RATE, 0, "NONE", ""))
        wav.writeframes(noise)
    with tarfile.open(path, "w") as tar:
        for i in range(PAIRS):
            for extension, data in (
                ("wav", sound.getvalue()),
                ("json", json.dumps(MANIFEST | {"id": str(i)}).encode()),
            ):
                add(tar, f"{i:06d}.{extension}", data)


def until_read(command: list[str | Path], member: Path) -> float:
    """Seconds from the command to the first bytes of a member."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    while True:
        try:
            member.read_bytes()
            return time.perf_counter() - begin
        except FileNotFoundError:
            time.sleep(0.002)


def unmount(path: Path) -> None:
    subprocess.run(["fusermount3", "-u", path], check=True)
    while path.exists() and os.path.ismount(path):
        time.sleep(0.01)


def compare(title: str, contestants: dict[str, Callable[[], float]], rounds: int, wanted: float = 0) -> None:
    medians = interleaved(contestants, rounds)
    ours = medians["touchfs"]
    rows = []
    for name, took in medians.items():
        told = "" if name == "touchfs" else f"touchfs is {took / ours:.1f}x as fast"
        if told and wanted:
            told += f", {at_least(took / ours, wanted, 'x')}"
        rows.append((name, f"{took * 1e3:,.1f} ms", told))
    report(title, rows)


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        root = Path(temporary)
        own_cache_and_state(root)
        (root / "data").mkdir()
        tar = root / "data" / "x.tar"
        make_tar(tar)
        lines = root / "x.jsonl"
        lines.write_text("".join(f'{{"id": {i}}}\n' for i in range(LINES)))

        for path, dialect, theirs in ((tar, Dialect.LHOTSE, create_tar_index), (lines, None, create_jsonl_index)):
            own, other = str(root / "own.idx"), str(root / "other.idx")

            def index(path: Path = path, dialect: Dialect | None = dialect, own: str = own) -> None:
                Path(own).unlink(missing_ok=True)
                write_index(str(path), own, dialect)

            def index_by_lhotse(path: Path = path, theirs: Callable[..., object] = theirs, other: str = other) -> None:
                Path(other).unlink(missing_ok=True)
                theirs(str(path), output_path=other)

            index(), index_by_lhotse()
            assert Path(own).read_bytes() == Path(other).read_bytes()
            compare(
                f"Index {path.name}, {path.stat().st_size / 1e6:.0f} MB",
                {"touchfs": lambda: seconds_of(index), "Lhotse": lambda: seconds_of(index_by_lhotse)},
                7,
                8,
            )

        member = "000777.wav"
        places = {"touchfs": root / "own" / "shards" / "x", "ratarmount": root / "ratar"}
        for known in (False, True):

            def mount_own(known: bool = known) -> float:
                if not known:
                    shutil.rmtree(root / "cache", ignore_errors=True)
                took = until_read([TOUCHFS, "mount", root / "data", root / "own"], places["touchfs"] / member)
                subprocess.run([TOUCHFS, "umount", root / "own"], check=True)
                while (root / "own").exists():
                    time.sleep(0.01)
                return took

            def mount_ratar(known: bool = known) -> float:
                index = root / "ratar.sqlite"
                if not known:
                    index.unlink(missing_ok=True)
                places["ratarmount"].mkdir(exist_ok=True)
                command = [RATARMOUNT, "--index-file", index, tar, places["ratarmount"]]
                took = until_read(command, places["ratarmount"] / member)
                unmount(places["ratarmount"])
                return took

            title = f"Mount the tar, {'indexed before' if known else 'never seen before'}"
            compare(title, {"touchfs": mount_own, "ratarmount": mount_ratar}, 3)

        until_read([TOUCHFS, "mount", root / "data", root / "own"], places["touchfs"] / member)
        stack.callback(subprocess.run, [TOUCHFS, "umount", root / "own"], check=True)
        until_read(
            [RATARMOUNT, "--index-file", root / "ratar.sqlite", tar, places["ratarmount"]],
            places["ratarmount"] / member,
        )
        stack.callback(unmount, places["ratarmount"])
        paths = {name: [f"{place}/{i:06d}.wav" for i in range(PAIRS)] for name, place in places.items()}
        reader, opened = IndexedTarReader(str(tar)), stack.enter_context(tarfile.open(tar))
        opened.getmembers()

        def by_tarfile() -> None:
            for i in random.choices(range(PAIRS), k=READS):
                file = opened.extractfile(f"{i:06d}.wav")
                assert file is not None
                file.read()

        def by_lhotse() -> None:
            for i in random.choices(range(PAIRS), k=READS):
                reader[i]

        compare(
            f"Read {READS:,} random members of 32 KB",
            {
                **{name: (lambda each=each: open_read_close(each, 33_000, READS)) for name, each in paths.items()},
                "tarfile, no mount": lambda: seconds_of(by_tarfile),
                "Lhotse's reader, no mount": lambda: seconds_of(by_lhotse),
            },
            5,
        )


if __name__ == "__main__":
    run(main)
