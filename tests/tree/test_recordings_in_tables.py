"""Recordings in the cells of tables: pieces, lengths and lists are those of the same recordings in a tar."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from arrow_tables import FORMATS, write_arrow
from recordings import SECONDS, make
from tars import write_tar
from tree_files import read
from variants import with_variants

from touchfs.catalog.catalog import Catalog
from touchfs.dataset import Dataset
from touchfs.indexing import open_dataset
from touchfs.shard.options import Options
from touchfs.tree.tree import Tree

KINDS = [*FORMATS, "parquet", "parquet-plain", "parquet-nested", "lance"]
SPANS = ("all", "0.25-1.5")  # `test_slices_by_name.py` has spans of samples


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """In several codings and rates, and the last of them damaged."""
    place = tmp_path_factory.mktemp("recordings")
    made = [
        make(place, "a.wav", 16000, 1),
        make(place, "b.flac", 44100, 2),
        make(place, "c.mp3", 44100, 1),
        make(place, "d.wav", 8000, 2),
        make(place, "e.ogg", 48000, 1, "-c:a", "libopus"),
    ]
    damaged = place / "f.flac"
    damaged.write_bytes(b"fLaC" + b"\xff" * 500)
    return [*made, damaged]


def cells(files: Sequence[Path]) -> pa.Array:
    audio = [{"bytes": path.read_bytes(), "path": path.name} for path in files]
    return pa.array(audio, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def write(place: Path, kind: str, files: Sequence[Path], *more: tuple[str, pa.Array]) -> Path:
    """A table with a column `audio` as Hugging Face stores it, and one of texts."""
    columns: dict[str, pa.Array] = {
        "key": pa.array([path.stem for path in files]),
        "audio": cells(files),
        "text": pa.array([f"It is {path.name}." for path in files]),
        **dict(more),
    }
    table = pa.table(columns)
    place.mkdir()
    if kind == "lance":
        lance.write_dataset(table, str(place / "x.lance"), max_rows_per_group=4)
    elif kind.startswith("parquet"):
        options = {"compression": "none", "use_dictionary": False} if kind == "parquet-plain" else {}
        pq.write_table(table, place / "x.parquet", row_group_size=4, **options)
    else:
        write_arrow(place / "x.arrow", table, kind)
    return place


def write_as_tar(place: Path, files: Sequence[Path]) -> Path:
    place.mkdir()
    members = {}
    for path in files:
        members[path.name] = path.read_bytes()
        members[f"{path.stem}.json"] = json.dumps({"text": f"It is {path.name}."}).encode()
    write_tar(place / "x.tar", members)
    return place


def opened(place: Path, *, full: bool = False, layout: str | None = None) -> tuple[Dataset, Tree]:
    dataset = open_dataset(os.fspath(place), options=Options(layout=layout), in_place=True, full=full)
    return dataset, Tree(dataset, range(1, len(dataset.shards) + 1))


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory, recordings: list[Path]) -> dict[bool, tuple[Dataset, Tree]]:
    """The same in a tar, by whether its index is full."""
    places = {full: tmp_path_factory.mktemp("tars") / "tar" for full in (False, True)}
    return {full: opened(write_as_tar(place, recordings), full=full) for full, place in places.items()}


@pytest.fixture(scope="module")
def pieces(tars: dict[bool, tuple[Dataset, Tree]], recordings: list[Path]) -> dict[tuple[bool, str, str], bytes]:
    return {
        (full, span, path.stem): read(tree, f"slices/{span}/x/{path.stem}.wav")
        for full, (_, tree) in tars.items()
        for span in SPANS
        for path in recordings[:-1]
    }


def lists_of(tree: Tree) -> dict[str, bytes]:
    return {name: read(tree, f"manifests/{name}") for name in ("nemo_manifest.jsonl", "kaldi/utt2dur", "kaldi/text")}


@pytest.mark.parametrize(
    "pair", with_variants(product(KINDS, (False, True)), lambda pair: pair[1] == KINDS.index(pair[0]) % 2), ids=str
)
def test_pieces_are_those_of_a_tar(
    tmp_path: Path, recordings: list[Path], pieces: dict[tuple[bool, str, str], bytes], pair: tuple[str, bool]
) -> None:
    """Each kind once, every other one with a full index."""
    kind, full = pair
    layout = "nested" if kind == "parquet-nested" else None
    _, table = opened(write(tmp_path / "table", kind, recordings), full=full, layout=layout)
    for path in recordings[:-1]:
        name = f"{path.stem}/audio.wav" if layout else f"{path.stem}.wav"
        directory = f"slices/all/x/{path.stem}" if layout else "slices/all/x"
        assert os.path.basename(name).encode() in [each for each, _, _ in table.entries(table.resolve(directory).inode)]
        for span in SPANS:
            assert read(table, f"slices/{span}/x/{name}") == pieces[full, span, path.stem], (span, name)


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_and_lists_are_those_of_a_tar(
    tmp_path: Path, recordings: list[Path], tars: dict[bool, tuple[Dataset, Tree]], kind: str
) -> None:
    """Once the index is full. Names of files are others in a directory for each row."""
    layout = "nested" if kind == "parquet-nested" else None
    place = write(tmp_path / "table", kind, recordings)
    before, _ = opened(place, layout=layout)
    assert (before.timed, before.facts()["samples_of_unknown_duration"]) == (0, 6)
    dataset, table = opened(place, full=True, layout=layout)
    expected, tar = tars[True]
    assert (dataset.timed, dataset.seconds) == (expected.timed, expected.seconds) == (5, 5 * SECONDS)
    assert dataset.facts()["samples_of_unknown_duration"] == expected.facts()["samples_of_unknown_duration"] == 1
    own, others = lists_of(table), lists_of(tar)
    if layout:  # another path, and the same line else
        others["nemo_manifest.jsonl"] = re.sub(rb"/(\w)\.(\w+)\"", rb'/\1/audio.\2"', others["nemo_manifest.jsonl"])
    assert own == others
    reports = [read(each, "shards/x/ERROR.txt").decode().splitlines() for each in (table, tar)]
    own_lines, lines = ([line for line in report if "cannot be decoded" in line] for report in reports)
    assert (own_lines, len(lines)) == (lines, 1)
    left = {
        line.split("\t")[0]: line.split("\t")[1] for line in read(table, "manifests/left_out.txt").decode().splitlines()
    }
    assert "ERROR.txt of its shard says why" in left["shards/x/f/audio.flac" if layout else "shards/x/f.flac"]


@pytest.mark.parametrize("kind", ["file", "parquet"])
def test_keys_that_depend_on_each_other_keep_their_lengths(tmp_path: Path, recordings: list[Path], kind: str) -> None:
    """Names of such rows are made one by one; those of rows without keys follow from their numbers."""
    for number, key in enumerate(("a/b", None)):
        keys = pa.array([key] * 2, pa.string())
        place = write(tmp_path / f"{number}", kind, recordings[:2], ("key", keys))
        dataset, _ = opened(place, full=True)
        (table,) = (Catalog(shard.catalog).tables["shards"] for shard in dataset.shards)
        kinds = Catalog(dataset.shards[0].catalog).kinds
        found = sorted(
            (kinds[table.kind[row] - 1].rate, table.frames[row]) for row in range(table.rows) if table.frames[row]
        )
        assert found == [(16000, 16000 * SECONDS), (44100, 44100 * SECONDS)]


def test_a_row_has_one_recording(tmp_path: Path, recordings: list[Path]) -> None:
    """The same one before its length is known and after: WAV and FLAC precede other codings."""
    wav, flac, mp3 = recordings[:3]
    place = write(tmp_path / "table", "file", [wav, mp3], ("other", cells([mp3, flac])))
    for full in (False, True):
        dataset, tree = opened(place, full=full, layout="nested")
        for key, column, path in (("a", "audio", wav), ("c", "other", flac)):
            names = [name for name, _, _ in tree.entries(tree.resolve(f"slices/all/x/{key}").inode)]
            assert names == [f"{column}.wav".encode()]
            samples, rate = soundfile.read(io.BytesIO(read(tree, f"slices/all/x/{key}/{column}.wav")), dtype="int16")
            assert rate == soundfile.info(path).samplerate
            assert (samples == soundfile.read(path, dtype="int16")[0]).all()
        assert dataset.timed == 2 * full
