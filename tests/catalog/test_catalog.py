import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from seals import resealed

from touchfs.catalog.catalog import VERSION, Catalog, Facts, FileKind, write_catalog
from touchfs.catalog.table import DIRECTORY, Table
from touchfs.catalog.table_builder import TableBuilder
from touchfs.core.errors import ChangedError, FormatError, SourceError, TouchfsError
from touchfs.core.names import quote
from touchfs.format.arrow.mapped_columns import BinaryColumn, Column
from touchfs.format.arrow.sealed import build_sealed, parse_sealed
from touchfs.source.fingerprint import Fingerprint

KINDS = [FileKind("audio", "audio.bin", "wav/16000"), FileKind("metainfo", "metainfo.bin", "inline", "a note")]
FACTS = Facts({"audio.bin": Fingerprint(5, 6, 7)}, 3, 1.5, 5, 6, 1, "ERROR é \udcff")
NAMES = st.text(min_size=1, max_size=3).map(quote)
PATHS = st.sets(
    st.lists(NAMES | st.sampled_from([b"a", b"b", b"a~2"]), min_size=1, max_size=4).map(b"/".join), max_size=25
)


def build(paths: list[bytes]) -> dict[str, Column]:
    """Of each path another entry, so that it can be told whose it is."""
    table = TableBuilder()
    for i in range(len(paths)):
        table.add(i % 2 + 1, i, i % 3, i * 2**33, i * 10, 2**40 + i, i % 5, b"key %d" % i, bytes([i % 256]) * (i % 2))
    assert len(table) == len(paths)
    return table.columns((path.rpartition(b"/")[0], path.rpartition(b"/")[2]) for path in paths)


def write(path: Path, tables: Mapping[str, list[bytes]]) -> Catalog:
    write_catalog(str(path), {view: build(paths) for view, paths in tables.items()}, KINDS, FACTS)
    return Catalog(str(path))


def check_table(table: Table, paths: list[bytes]) -> None:
    """It shows exactly these files, in these directories."""
    tree: dict[bytes, set[bytes]] = {b"": set()}
    for path in paths:
        while path:
            parent, _, name = path.rpartition(b"/")
            tree.setdefault(parent, set()).add(name)
            path = parent
    assert table.rows == len(set(paths) | set(tree))
    rows = {b"": 0}
    for directory in sorted(tree):
        row = rows[directory]
        assert table.kind[row] == DIRECTORY
        children = table.children(row)
        assert [table.name(child) for child in children] == sorted(tree[directory])
        for child in children:
            name = table.name(child)
            assert table.parent[child] == row
            assert table.find(row, name) == child
            assert table.find(row, name + b"\0") is None
            rows[directory + b"/" + name if directory else name] = child
        for absent in (b"", b"\xff\xff\xff\xff", b"no such name", directory or b"/"):
            assert absent in tree[directory] or table.find(row, absent) is None
    assert sorted(rows.values()) == list(range(table.rows))
    for i, path in enumerate(paths):
        row = rows[path]
        assert (table.kind[row], table.ordinal[row], table.part[row]) == (i % 2 + 1, i, i % 3)
        assert (table.offset[row], table.length[row], table.size[row]) == (i * 2**33, i * 10, 2**40 + i)
        assert table.key(row) == f"key {i}"
        assert table.suffix[row] == i % 5
        assert table.files(i) == [row]
        assert table.path(row) == path
        assert table.inline(row) == bytes([i % 256]) * (i % 2)


@given(PATHS, st.randoms())
@example({b"a/b/c/d", b"a/b/x", b"a~2", b"b"}, random.Random(0))
def test_a_table_has_exactly_the_paths_put_in(
    tmp_path_factory: pytest.TempPathFactory, paths: set[bytes], order: random.Random
) -> None:
    directories = {path[:i] for path in paths for i in range(len(path)) if path[i : i + 1] == b"/"}
    files = sorted(paths - directories)
    order.shuffle(files)
    path = tmp_path_factory.mktemp("catalog") / "x.arrow"
    catalog = write(path, {"shards": files, "segments": files[::2]})
    check_table(catalog.tables["shards"], files)
    check_table(catalog.tables["segments"], files[::2])


@given(
    st.lists(st.sampled_from([b"a", b"b", b"d/a", b"c.x", b"e"]), unique=True),
    st.sampled_from([(1, 1), (0, 2**8), (2**16, 2**20), (2**31, 2**40)]),
    st.booleans(),
    st.sampled_from(["path", "none", "other", "mixed"]),
    st.randoms(),
)
@example([b"a", b"b", b"c.x"], (1, 1), True, "path", random.Random(0))
def test_columns_that_are_not_stored_are_read_all_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[bytes],
    numbers: tuple[int, int],
    sized: bool,
    keys: str,
    randomly: random.Random,
) -> None:
    """Constant or following from others, or of the fewest bytes: nothing of that shows."""
    builder, expected = TableBuilder(), {}
    for ordinal, path in enumerate(names):
        offset, length, frames = (randomly.randint(*numbers) for _ in range(3))
        key = {"path": path, "none": b"", "other": b"k%d" % ordinal, "mixed": randomly.choice([b"", path, b"k"])}[keys]
        row = (1, ordinal, offset, length, length + (not sized) * 44, frames, 4)
        builder.add(row[0], ordinal, 0, offset, length, row[4], 4, key, b"", frames)
        expected[path + b".wav"] = (*row, key)
    split = [(path.rpartition(b"/")[0], path.rpartition(b"/")[2]) for path in expected]
    place = str(tmp_path_factory.mktemp("catalog") / "x.arrow")
    write_catalog(place, {"shards": builder.columns(split), "segments": TableBuilder().columns([])}, KINDS, FACTS)
    table = Catalog(place).tables["shards"]
    found = {}
    for row in range(table.rows):
        if table.kind[row] != DIRECTORY:
            told = (table.kind, table.ordinal, table.offset, table.length, table.size, table.frames, table.suffix)
            found[table.path(row)] = (*(int(column[row]) for column in told), table.own_key(row))
            assert (table.part[row], table.inline(row)) == (0, b"")
    assert found == expected
    ordinals = np.arange(len(names) + 2)
    of_sample = [table.files(int(ordinal)) for ordinal in ordinals]
    assert [[table.path(row) for row in rows] for rows in of_sample] == [[path] for path in expected] + [[], []]
    firsts = table.first_files(ordinals).tolist()
    assert firsts == [rows[0] if rows else -1 for rows in of_sample]
    assert table.first_files_of_parts(ordinals[: len(names)]).tolist() == firsts[: len(names)]
    assert table.paths(np.array(firsts[: len(names)], np.int64), b"p/") == [b"p/" + path for path in expected]


@pytest.mark.parametrize("counts", [[0, 3, 1], [200, 0, 90], [1], [0]])
def test_files_of_parts_are_those_of_a_slow_look(tmp_path: Path, counts: list[int]) -> None:
    """Samples with so many parts, of which some have two files, also more than are looked at one by one."""
    builder, paths = TableBuilder(), []
    for ordinal, parts in enumerate(counts):
        for part in range(parts):
            for ending in ("wav", "txt")[: 1 + part % 2]:
                builder.add(1, ordinal, part, 0, 0, 0, 4, b"", b"", 0)
                paths.append((b"%d" % ordinal, b"%04d.%s" % (part, ending.encode())))
    write_catalog(str(tmp_path / "x.arrow"), {"segments": builder.columns(paths)}, KINDS, FACTS)
    table = Catalog(str(tmp_path / "x.arrow")).tables["segments"]
    for ordinal, parts in enumerate([*counts, 0]):
        own = [row for row in table.order if table.kind[row] != DIRECTORY and table.ordinal[row] == ordinal]
        assert table.files(ordinal) == own and table.parts(ordinal) == parts
        for first, stop, step in [(0, None, 1), (0, 1, 1), (7, 70, 1), (parts - 1, parts, 1), (0, None, 7), (3, 50, 4)]:
            wanted = range(parts)[max(first, 0) : stop : step]
            found = table.files_of_parts(ordinal, first, stop, step)
            assert found == [row for row in own if table.part[row] in wanted]


def test_a_catalog_tells_its_facts_and_kinds(tmp_path: Path) -> None:
    catalog = write(tmp_path / "x.arrow", {"shards": [b"a"], "segments": []})
    assert catalog.kinds == KINDS
    assert catalog.facts == FACTS
    assert list(catalog.tables) == ["shards", "segments"]
    check_table(catalog.tables["segments"], [])


def test_other_programs_can_read_it(tmp_path: Path) -> None:
    write(tmp_path / "x.arrow", {"shards": [b"b", b"d/c", b"a"]})
    file = pa.ipc.open_file(tmp_path / "x.arrow")
    names = [b"", b"a", b"b", b"d", b"c"]
    assert file.read_all().column("name").to_pylist() == names
    assert polars.read_ipc(tmp_path / "x.arrow")["name"].to_list() == names
    assert polars.scan_ipc(tmp_path / "x.arrow").select("name").collect()["name"].to_list() == names
    assert json.loads(file.schema.metadata[b"touchfs"])["samples"] == 3


def test_keys_that_are_not_utf8(tmp_path: Path) -> None:
    table = TableBuilder()
    table.add(1, 0, 0, 0, 0, 0, 0, "\ud800 é".encode("utf-8", "surrogatepass"))
    write_catalog(str(tmp_path / "x"), {"shards": table.columns([(b"", b"x")])}, KINDS, FACTS)
    key = Catalog(str(tmp_path / "x")).tables["shards"].key(1)
    assert os.fsencode(key) == b"\xed\xa0\x80 \xc3\xa9"


def test_deep_and_wide(tmp_path: Path) -> None:
    deep = [b"/".join([b"d"] * 500) + b"/x", b"/".join([b"d"] * 400) + b"/x"]
    wide = [b"%06d" % i for i in range(3000)]
    check_table(write(tmp_path / "x.arrow", {"v": deep + wide}).tables["v"], deep + wide)


def test_a_catalog_in_use_outlives_its_replacement(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    old = write(path, {"v": [b"old"]})
    new = write(path, {"v": [b"new"]})
    os.unlink(path)
    check_table(old.tables["v"], [b"old"])
    check_table(new.tables["v"], [b"new"])


def use(catalog: Catalog) -> None:
    for table in catalog.tables.values():
        for row in range(min(table.rows, 50)):
            table.name(row)
            table.inline(row)
            table.key(row)
            table.find(0, b"a")


@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.variant) for i in (1, 2))])
def test_a_planted_catalog_is_an_error_or_reads(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "x.arrow"
    write(path, {"shards": [b"a", b"b/c"], "segments": [b"a"]})
    data = path.read_bytes()
    assert resealed(data) == data
    randomly = random.Random(seed)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(randomly.randrange(1, 4)):
            damaged[randomly.randrange(len(data))] = randomly.randrange(256)
        path.unlink()  # ext4 writes a file that is cut and written again to the disk at once, which takes 1 ms
        path.write_bytes(resealed(bytes(damaged[: randomly.choice([len(data), randomly.randrange(len(data))])])))
        try:
            use(Catalog(str(path)))
        except (FormatError, ChangedError) as error:
            assert error.path in (str(path), None)
            assert "\n" not in str(error)
        except IndexError:
            pass  # the numbers of a row, which nothing but the writer knows


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    write(path, {"shards": [b"a", b"b/c"], "segments": [b"a"]})
    data = path.read_bytes()
    changed = [
        data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :] for place in range(0, len(data), 3)
    ]
    for damaged in (*changed, b"", data[:5], data[:-1], data + b"x", data[10:], b"x" + data):
        path.unlink()
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match="its checksum is wrong: index with --force"):
            Catalog(str(path))


def rewritten(data: bytes, **changed: Any) -> bytes:
    """The same tables with other metadata."""
    file = parse_sealed(data)
    told = json.loads(file.metadata["touchfs"])
    for key, value in changed.items():
        told[key] = value
    batches = [batch.columns for batch in file.batches]
    return b"".join(build_sealed(file.columns, batches, {"touchfs": json.dumps(told)}))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"version": 0}, "another version"),
        ({"version": "1"}, "another version"),
        ({"kinds": [{"what": 1}]}, "not a touchfs catalog"),
        ({"kinds": 3}, "not a touchfs catalog"),
        ({"files": []}, "not a touchfs catalog"),
        ({"views": ["one", "two"]}, "not a touchfs catalog"),
        ({"views": {"one": 1, "two": 1}}, "not a touchfs catalog"),
        ({"omitted": []}, "not a touchfs catalog"),
        ({"omitted": {}}, "is missing"),
        ({"omitted": {"parent": "length"}}, "unknown rule"),
        ({"omitted": {"parent": 2**70}}, "unknown rule"),
        ({"more": 1}, "not a touchfs catalog"),
    ],
)
def test_other_metadata(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    path = tmp_path / "x.arrow"
    write(path, {"shards": [b"a"]})
    path.write_bytes(rewritten(path.read_bytes(), **changed))
    with pytest.raises((FormatError, ChangedError), match=words) as caught:
        Catalog(str(path))
    assert caught.value.path == str(path)


def foreign(columns: Mapping[str, str], text: str) -> bytes:
    made: dict[str, Column] = {name: BinaryColumn.of([b"x"]) for name in columns}
    return b"".join(build_sealed(columns, [made], {"touchfs": text}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        bytes(5000),
        foreign({"name": "binary"}, "not JSON"),
        foreign({"name": "binary"}, "[]"),
        foreign({"name": "binary"}, "[" * 100_000),
        foreign({"name": "binary"}, json.dumps({"version": VERSION, "views": {"shards": 0}})),
        foreign(
            {"name": "binary", "key": "binary", "inline": "binary", "parent": "binary"},
            json.dumps({"version": VERSION, "views": {"v": 0}}),
        ),
    ],
)
def test_files_that_are_no_catalog(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.arrow"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="index with --force") as caught:
        Catalog(str(path))
    assert caught.value.path == str(path)


def test_a_catalog_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    expected: dict[str, type[TouchfsError]] = {"missing": ChangedError, ".": SourceError, "loop": SourceError}
    for name, error in expected.items():
        with pytest.raises(error):
            Catalog(str(tmp_path / name))


def test_a_column_holds_less_than_2_gib() -> None:
    assert len(BinaryColumn.at(np.array([0, 2**31 - 1]), memoryview(b""))) == 1
    with pytest.raises(FormatError, match="2 GiB"):
        BinaryColumn.at(np.array([0, 2**31]), memoryview(b""))


@pytest.mark.soak
def test_more_names_than_a_column_holds() -> None:
    """2 GiB of transcripts in one shard are refused when its rows are laid out, before anything is written."""
    table = TableBuilder()
    text = bytes(2**20)
    for i in range(2**11):
        table.add(1, i, 0, 0, 0, 0, 0, b"", text)
    with pytest.raises(FormatError, match="2 GiB"):
        table.columns((b"", b"%d" % i) for i in range(2**11))


@pytest.mark.parametrize(
    "name", [b"x\n", b"\x1b[2J", b"\x7f", "\x9b".encode(), "\u2028".encode(), "\u202e".encode(), b"\xff", b"..", b"."]
)
@pytest.mark.parametrize("place", ["name", "above"])
def test_a_planted_name_is_no_name(tmp_path: Path, name: bytes, place: str) -> None:
    """It would be a line of its own in a list, or a command to a terminal."""
    path = name if place == "name" else name + b"/passwd"
    table = write(tmp_path / "x.arrow", {"shards": [b"a", path]}).tables["shards"]
    (row,) = table.files(1)
    for ask in (lambda: table.path(row), lambda: table.paths(np.array([row]), b"")):
        with pytest.raises(FormatError, match="is damaged: index with --force"):
            ask()
    assert table.path(table.files(0)[0]) == b"a"
