"""Catalogs and keys that say what cannot be: an error of ours, never another file's bytes or an endless walk."""

import json
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seals import resealed, resealed_keys
from tars import write_tar
from touchnet import write_speech

from touchfs.catalog.catalog import Catalog
from touchfs.catalog.columns import NUMBERS, as_array, omit
from touchfs.catalog.keys import HEADER, IDENTITY_SIZE
from touchfs.catalog.table import DIRECTORY
from touchfs.core.errors import FormatError, TouchfsError
from touchfs.dataset import Dataset
from touchfs.dataset.samples import DatasetSamples
from touchfs.dataset.segments import MergedSamples, SegmentSamples
from touchfs.format.arrow.mapped_columns import BinaryColumn
from touchfs.format.arrow.sealed import build_sealed, parse_sealed
from touchfs.indexing import open_dataset
from touchfs.tree.tree import Tree
from touchfs.view.plan import parse_plan

SAMPLES = 5
MUTANTS = pytest.mark.parametrize(
    "mutants", [14, pytest.param(30, marks=pytest.mark.variant), pytest.param(150, marks=pytest.mark.soak)]
)


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """An endless walk fails after a minute of processor, and does not hang."""
    signal.signal(signal.SIGVTALRM, lambda number, frame: pytest.fail("endless"))
    signal.setitimer(signal.ITIMER_VIRTUAL, 60)
    yield
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    segments = [{"start": 0.0, "end": 0.001, "txt": "a"}, {"start": 0.001, "end": 0.002, "txt": "b"}]
    samples = [
        ({"key": f"d{j // 3}/utt{j}", "txt": "text", "sample_rate": 8000, "info": {"segments": segments}}, bytes(64))
        for j in range(SAMPLES)
    ]
    write_speech(tmp_path / "data" / "000000000", samples)
    (tmp_path / "secret").write_bytes(b"secret" * 1000)
    return tmp_path / "data"


@pytest.fixture
def dataset(source: Path) -> Dataset:
    return open_dataset(str(source))


def rewrite(dataset: Dataset, change: Callable[[dict[str, dict[str, Any]], dict[str, Any]], None]) -> None:
    """Write the catalog anew with other columns or facts."""
    path = Path(dataset.shards[0].catalog)
    facts = json.loads(parse_sealed(path.read_bytes()).metadata["touchfs"])
    tables: dict[str, dict[str, Any]] = {}
    for view, table in Catalog(str(path)).tables.items():
        names = BinaryColumn.of([table.name(row) for row in range(table.rows)])
        inlines = BinaryColumn.of([table.inline(row) for row in range(table.rows)])
        keys = BinaryColumn.of([table._keys[row] for row in range(table.rows)])
        tables[view] = {name: as_array(getattr(table, name)).astype(np.int64) for name in NUMBERS}
        tables[view] |= {"name": names, "inline": inlines, "key": keys}
        order = tables[view]["order"]
        tables[view]["order"] = np.concatenate([order, np.setdiff1d(np.arange(table.rows), order)])
    change(tables, facts)
    schema, stored, facts["omitted"] = omit(list(tables.values()))
    path.write_bytes(b"".join(map(bytes, build_sealed(schema, stored, {"touchfs": json.dumps(facts)}))))


def walk(dataset: Dataset) -> Iterator[bytes]:
    """Look at everything, in all ways there are, as far as that goes."""
    tree = Tree(dataset, [1])

    def below(inode: int, depth: int = 0) -> Iterator[bytes]:
        assert depth < 20
        if not tree.entry(inode).is_directory:
            content = tree.content(inode)
            yield bytes(content.read(0, min(content.size, 1 << 20)))
            return
        for name, entry, _ in tree.entries(inode):
            tree.find(inode, name)
            if entry.is_directory:
                yield from below(entry.inode, depth + 1)
            elif entry.is_link:
                yield tree.link(entry.inode)
            else:
                tree.attributes(entry.inode)
                content = tree.content(entry.inode)
                yield bytes(content.read(0, min(content.size, 1 << 20)))

    tree.find(tree.resolve("merged").inode, b"max=1")
    for path in ("slices/all", *(f"slices/1s-9s/000000000/d{i // 3}/utt{i}.wav" for i in range(SAMPLES))):
        yield from attempts(lambda path=path: below(tree.resolve(path).inode))
    for inode in [entry.inode for _, entry, _ in tree.entries(1)]:
        yield from attempts(lambda inode=inode: below(inode))
    for row in range(40):
        for view in (1, 2, 3, 7, 1025):
            yield from attempts(lambda view=view, row=row: [str(tree.entry(view << 52 | 1 << 32 | row)).encode()])
    for make in (DatasetSamples, SegmentSamples, lambda dataset: MergedSamples(dataset, parse_plan("max=1"))):
        yield from attempts(lambda make=make: paths(make(dataset)))
        yield from attempts(lambda make=make: (piece for sample in make(dataset) for piece in map(sample.get, sample)))
    yield from attempts(lambda: [str(dataset.find("d0/utt1")).encode()])


def paths(samples: Any) -> list[bytes]:
    return samples.paths(np.arange(20) % len(samples)) if len(samples) else []


def attempts(act: Callable[[], Any]) -> Iterator[bytes]:
    try:
        yield from act()
    except TouchfsError:
        return


def test_a_whole_one_is_walked(dataset: Dataset) -> None:
    assert b"text" in list(walk(dataset))


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "../data/000000000/audio.bin", "000000000", ""])
def test_only_files_of_the_shard_are_sources(dataset: Dataset, name: str) -> None:
    def change(tables: dict[str, Any], facts: dict[str, Any]) -> None:
        for kind in facts["kinds"]:
            kind["source"] = name

    rewrite(dataset, change)
    with pytest.raises(FormatError, match="which is not a file of this shard"):
        Tree(dataset, [1]).resolve("shards/000000000/d0")
    assert b"secret" not in b"".join(walk(dataset))


def column(name: str, values: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(tables: dict[str, Any], facts: dict[str, Any]) -> None:
        for table in tables.values():
            table[name][:] = values

    return change


def top(count: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda tables, facts: facts["views"].update(dict.fromkeys(facts["views"], count))


CHANGES = {
    "a root of more children than rows": top(2**40),
    "a root of less than no children": top(-1),
    "negative kinds": column("kind", -1),
    "negative parents": column("parent", -1),
    "a negative order": column("order", -1),
    "negative suffixes": column("suffix", -1),
    "keys of no kind": column("keyed", 200),
    "negative frames": column("frames", -5),
    "a directory in itself": column("offset", 0),
    "children that are none": column("length", 2**40),
    "a negative number of children": column("length", -1),
    "offsets before the file": column("offset", -(2**62)),
    "parents in a circle": column("parent", 3),
    "parents that there are not": column("parent", 2**32 - 1),
    "kinds that there are not": column("kind", 2**16 - 1),
    "only directories": column("kind", 0),
    "only files": column("kind", 1),
    "an order of rows that there are not": column("order", 2**32 - 2),
    "samples that there are not": column("ordinal", 2**32 - 2),
    "all of one sample": column("ordinal", 0),
    "parts that there are not": column("part", 77),
    "huge files": column("size", 2**62),
    "suffixes longer than names": column("suffix", 2**16 - 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_numbers_are_checked_where_they_are_used(dataset: Dataset, change: Callable[..., None]) -> None:
    rewrite(dataset, change)
    list(walk(dataset))


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0b", b"\xff", b"a\nb"])
def test_a_name_that_cannot_be_is_refused_in_columns_too(tmp_path: Path, name: bytes) -> None:
    write_tar(tmp_path / "a.tar", {f"{number:04}.x": b"x" for number in range(64)})
    dataset = open_dataset(str(tmp_path / "a.tar"))

    def change(tables: dict[str, dict[str, Any]], facts: dict[str, Any]) -> None:
        names = tables["shards"]["name"]
        tables["shards"]["name"] = BinaryColumn.of(
            [*(names[row] for row in range(40)), name, *(names[row] for row in range(41, 65))]
        )

    rewrite(dataset, change)
    tree = Tree(dataset, [1])
    shard = tree.resolve("shards/a").inode
    for look in (lambda: tree.files(shard, 0, 64), lambda: list(tree.entries(shard))):
        with pytest.raises(FormatError, match="catalog is damaged"):
            look()


def test_a_file_of_a_kind_that_there_is_not(dataset: Dataset) -> None:
    """Its directory is one as before, so it is found, and opened."""

    def change(tables: dict[str, Any], facts: dict[str, Any]) -> None:
        for table in tables.values():
            table["kind"][table["kind"] != DIRECTORY] = 2**16 - 1

    rewrite(dataset, change)
    tree = Tree(dataset, [1])
    inode = tree.resolve("shards/000000000/d0/utt0.txt").inode
    with pytest.raises(FormatError, match="its catalog is damaged"):
        tree.content(inode)


@pytest.mark.parametrize("form", ["wav/x", "npy/O", "lilcom/x", "sparse", "what", None])
def test_a_form_that_there_is_not(dataset: Dataset, form: Any) -> None:
    def change(tables: dict[str, Any], facts: dict[str, Any]) -> None:
        for kind in facts["kinds"]:
            kind["form"] = form

    rewrite(dataset, change)
    list(walk(dataset))


@MUTANTS
def test_bytes_that_are_flipped(dataset: Dataset, mutants: int) -> None:
    path = Path(dataset.shards[0].catalog)
    whole, dice = path.read_bytes(), random.Random(1)
    for _ in range(mutants):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 1, 8))):
            data[dice.randrange(len(data))] = dice.choice((0, 1, 255, dice.randrange(256)))
        path.write_bytes(resealed(bytes(data)))
        list(walk(dataset))


@MUTANTS
def test_keys_that_are_flipped(source: Path, dataset: Dataset, mutants: int) -> None:
    assert not isinstance(dataset.keys, str)
    path = Path(dataset.keys.path)
    whole, dice = path.read_bytes(), random.Random(2)
    for number in range(mutants):
        data = bytearray(whole)
        start = HEADER.size + IDENTITY_SIZE if number % 2 else 0
        for _ in range(dice.choice((1, 1, 8))):
            data[dice.randrange(start, len(data))] = dice.choice((0, 255, dice.randrange(256)))
        path.write_bytes(resealed_keys(bytes(data)))
        for again in attempts_to_open(source):
            list(walk(again))


def attempts_to_open(source: Path) -> Iterator[Dataset]:
    try:
        yield open_dataset(str(source))
    except TouchfsError:
        return
