"""A dataset of every kind of shard, each in a directory of its own, written by those whose formats they are."""

import gzip
import os
import random
import subprocess
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
from arrow_tables import pictures, write_arrow, write_cache
from command import TOUCHFS
from interleaved_tars import make_wds_tar, mint_sample
from lance_frames import frames_of, write_frames
from megatron import tokens, write_prefix
from tars import write_tar
from touchnet import write_speech
from tree_files import files_below

from touchfs.indexing import open_dataset
from touchfs.limits import Limits
from touchfs.shard.options import INTERLEAVED, Options
from touchfs.tree.tree import Tree

SPEECH = Path(__file__).parent / "data" / "speech"
OPTIONS = {
    "kaldi": Options(limits=Limits(audio_root=str(SPEECH / "wav"))),
    "interleaved": Options(kind=INTERLEAVED),
}
LINES = b"".join(b'{"id": "line-%d", "text": "words %d"}\n' % (i, i) for i in range(40))


def write_every_kind(place: Path) -> list[str]:
    """The names of the directories, in `place`. Of `kaldi`, the audio is in the directory itself."""
    chooser = random.Random(7)
    sizes = {"txt": 9, "bin": 5000}
    samples = {f"s{i:02}.{end}": chooser.randbytes(size) for i in range(20) for end, size in sizes.items()}
    write_speech(place / "touch", [({"key": f"u{i}", "sample_rate": 8000}, chooser.randbytes(4000)) for i in range(5)])
    write_prefix(place / "megatron" / "text", 4, [tokens(*range(i)) for i in range(1, 30)])
    (place / "tar").mkdir()
    write_tar(place / "tar" / "a.tar", samples)
    make_wds_tar(place / "tar.gz" / "a.tar.gz", samples.items())
    (place / "jsonl").mkdir()
    (place / "jsonl" / "a.jsonl").write_bytes(LINES)
    (place / "jsonl.gz").mkdir()
    (place / "jsonl.gz" / "a.jsonl.gz").write_bytes(gzip.compress(LINES))
    (place / "arrow").mkdir()
    write_arrow(place / "arrow" / "a.arrow", pictures())
    write_arrow(place / "arrow" / "b.arrow", pictures(), "stream")
    (place / "parquet").mkdir()
    pq.write_table(pictures(), place / "parquet" / "a.parquet")
    write_cache(place / "cache", [pictures(), pictures()])
    make_wds_tar(place / "interleaved" / "a.tar", [mint_sample(number) for number in range(3)])
    wavs = sorted((SPEECH / "wav").iterdir())
    write_tar(place / "segments" / "talks.tar", {path.name: path.read_bytes() for path in wavs})
    (place / "segments" / "segments").write_text("".join(f"{path.stem}-a {path.stem} 0.1 0.3\n" for path in wavs))
    (place / "kaldi").mkdir()
    (place / "kaldi" / "wav.scp").write_text("".join(f"{path.stem} {path.name}\n" for path in wavs))
    run = [TOUCHFS, "pack", "shar", SPEECH / "speech.jsonl", place / "shar", "--num-utt-per-shard", "6", "--jobs", "1"]
    subprocess.run(run, check=True, capture_output=True)
    write_frames(place / "frames.lance", frames_of())
    write_rows(place / "rows.lance")
    return sorted(path.name for path in place.iterdir())


def write_rows(place: Path) -> None:
    """A Lance dataset of two fragments, from which rows were deleted, with blobs in its files and beside them."""
    blobs = lance.blob_array([None if i == 2 else random.Random(i).randbytes(70_000 * (i % 3)) for i in range(20)])
    columns = {"key": [f"r{i:02}" for i in range(20)], "text": [f"words {i}" for i in range(20)]}
    table = pa.table(columns).append_column(lance.blob_field("bin"), blobs)
    lance.write_dataset(table, place, data_storage_version="2.2", max_rows_per_file=12)
    lance.dataset(place).delete("key = 'r05'")


def files_of(source: str | Path) -> tuple[dict[str, bytes], list[str]]:
    """All files below `shards`, and the reports of the shards. The name of a source says how it is opened."""
    options = OPTIONS.get(os.path.basename(source), Options())
    dataset = open_dataset(str(source), options=options)
    tree, files = Tree(dataset, range(1, len(dataset.shards) + 1)), {}

    for view in ("shards", "interleaved") if options.kind == INTERLEAVED else ("shards",):
        files |= {f"{view}/{name}": data for name, data in files_below(tree, view).items()}
    return files, [shard.report for shard in dataset.shards]
