"""Passes over 10,000 cuts of 1 s in a Lhotse Shar: the nodes of touchfs, and Lhotse's own over the same files.

An item is the cut's JSON, parsed by orjson on both sides, and the bytes of its recording. Then what Lhotse has no like
of at this size: the restore of a shuffled pass over 10,000,000 samples, and what it takes of memory.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from harness import at_least, at_most, interleaved, own_cache_and_state, report, run
from lhotse import CutSet

from touchfs import SampleSet
from touchfs.node import LazyIndexedManifestIterator, LazyShuffler, collect_state_dict, restore_state_dict
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.write import Audio, SharWriter

CUTS, RATE, TAKEN, LARGE, BUFFER = 10_000, 16_000, 2_000, 10_000_000, 10_000


def make(directory: Path) -> None:
    noise = np.random.default_rng(0).integers(-3000, 3000, RATE, np.int16)
    with SharWriter(directory, {"recording": "wav"}, compress_jsonl=False) as writer:
        for number in range(CUTS):
            writer.write({"id": f"cut-{number:05d}"}, {"recording": Audio(noise, RATE)})


def per_second(items: Any, use: Callable[[Any], object], count: int) -> float:
    begin = time.perf_counter()
    taken = 0
    for item in islice(items, count):
        use(item)
        taken += 1
    assert taken == count
    return count / (time.perf_counter() - begin)


def both(ours: Any) -> object:
    return orjson.loads(ours["json"]), ours["wav"]


def loaded(cut: Any) -> object:
    return cut.id, cut.recording.sources[0].source


def memory_of_a_pass() -> float:
    """MB that a shuffled pass over ten million samples adds to the interpreter with the nodes imported."""
    code = (
        "import resource\nfrom touchfs.node import LazyIndexedManifestIterator\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"node = LazyIndexedManifestIterator(range({LARGE}), shuffle=True, seed=1)\n"
        "from itertools import islice\nfor _ in islice(node, 300_000): pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout) / 1024


def restore_ms(node: Callable[[], Any], skipped: int) -> tuple[float, object]:
    """Milliseconds to restore a state and take the next item, and that item."""
    source = node()
    pairs = source.pairs()
    for _ in islice(pairs, skipped):
        pass
    state = collect_state_dict(source)
    again = node()
    begin = time.perf_counter()
    restore_state_dict(again, state)
    item = next(iter(again))
    took = (time.perf_counter() - begin) * 1e3
    _, expected = next(pairs)
    assert item == expected()
    return took, item


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        own_cache_and_state(Path(temporary))
        shar = Path(temporary) / "shar"
        make(shar)
        ours, theirs = SampleSet.from_shar(in_dir=shar, indexed=True), CutSet.from_shar(in_dir=str(shar), indexed=True)
        mixed = SampleSet.from_shar(in_dir=shar, indexed=True).shuffle(seed=1)
        mixed_theirs = CutSet.from_shar(in_dir=str(shar), indexed=True, shuffle_shards=True, seed=1)
        chosen = random.Random(0)

        def rebuilt(node: Any, use: Callable[[Any], object]) -> float:
            tokens = [(chosen.randrange(CUTS), 0) for _ in range(TAKEN)]
            begin = time.perf_counter()
            for token in tokens:
                use(node[token])
            return TAKEN / (time.perf_counter() - begin)

        rows = []
        for title, mine, other, wanted in (
            ("node[token]", lambda: rebuilt(ours.data, both), lambda: rebuilt(theirs.data, loaded), 5),
            ("in order", lambda: per_second(ours, both, TAKEN), lambda: per_second(theirs, loaded, TAKEN), 3),
            ("shuffled", lambda: per_second(mixed, both, TAKEN), lambda: per_second(mixed_theirs, loaded, TAKEN), 3),
        ):
            medians = interleaved({"touchfs": mine, "Lhotse": other}, 7)
            ratio = medians["touchfs"] / medians["Lhotse"]
            told = f"{medians['touchfs']:,.0f} items/s, Lhotse {medians['Lhotse']:,.0f}: {ratio:.1f}x"
            rows.append((title, told, at_least(ratio, wanted, "x")))
        report("Cuts with their recordings", rows)

        from lhotse.lazy import LazyShuffler as TheirShuffler

        def their_buffer() -> float:
            source = TheirShuffler(CutSet.from_shar(in_dir=str(shar), indexed=True).data, buffer_size=BUFFER)
            items = iter(source)
            for _ in islice(items, 100):
                pass
            state = source.state_dict()
            again = TheirShuffler(CutSet.from_shar(in_dir=str(shar), indexed=True).data, buffer_size=BUFFER)
            begin = time.perf_counter()
            again.load_state_dict(state)
            next(iter(again))
            return (time.perf_counter() - begin) * 1e3

        def our_buffer() -> float:
            def node() -> Any:
                return LazyShuffler(SampleSet.from_shar(in_dir=shar, indexed=True).data, BUFFER)

            return restore_ms(node, 100)[0]

        medians = interleaved({"touchfs": our_buffer, "Lhotse": their_buffer}, 3)
        ratio = medians["Lhotse"] / medians["touchfs"]
        told = f"{medians['touchfs']:.1f} ms, Lhotse {medians['Lhotse']:.0f} ms: {ratio:.0f}x"
        rows = [(f"a shuffle buffer of {BUFFER:,}", told, at_least(ratio, 50, "x"))]

        def large() -> Any:
            return LazyIndexedManifestIterator(range(LARGE), shuffle=True, seed=7)

        whole = large()
        pairs = whole.pairs()
        for _ in islice(pairs, LARGE // 10):
            pass
        for share in ("10 %", "90 %"):
            state = collect_state_dict(whole)
            times = []
            for _ in range(9):
                again = large()
                begin = time.perf_counter()
                restore_state_dict(again, state)
                item = next(iter(again))
                times.append((time.perf_counter() - begin) * 1e3)
            _, expected = next(pairs)
            assert item == expected()
            took = sorted(times)[4]
            told = f"{took:.2f} ms, a state of {len(json.dumps(state))} bytes"
            rows.append((f"{LARGE:,} samples shuffled, at {share}", told, at_most(took, 1, " ms")))
            if share == "10 %":
                for _ in islice(pairs, LARGE * 8 // 10 - 1):
                    pass
        begin = time.perf_counter()
        Feistel(1_000_000, round_keys(1))(np.arange(1_000_000))
        took = time.perf_counter() - begin
        rows.append(("a Feistel block of 1,000,000", f"{took:.2f} s", at_most(took, 0.2, " s")))
        memory = memory_of_a_pass()
        rows.append(("memory of that pass", f"{memory:.1f} MB", at_most(memory, 20, " MB")))
        report("Restore", rows)


if __name__ == "__main__":
    run(main)
