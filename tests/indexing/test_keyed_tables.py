"""Catalogs of tables whose rows have keys: those made from arrays are those that are made file by file."""

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pytest
from arrow_tables import JPG, PNG, write_arrow, write_cache
from hypothesis import given, settings
from hypothesis import strategies as st

from touchfs.catalog.catalog import Catalog
from touchfs.indexing.catalogs import make_catalog
from touchfs.indexing.tables import row_tables
from touchfs.shard.options import Options

# Keys of other characters and lengths, that begin each other, end in extensions, repeat, or are no names of files.
ODD = [
    "a",
    "a.jpg",
    "a.b",
    "a.b.jpg",
    "b.png",
    ".jpg",
    "ERROR",
    "ERROR.txt",
    ".",
    "..",
    ".touchfs",
    "x/y",
    "x/",
    "x%2F",
]
ODD += [
    "x%2F",
    "ü空",
    "\x85",
    "\x01",
    "00000001",
    "row.json",
    "a.image.jpg",
    "k" * 250,
    "k" * 256,
    "",
    None,
    "~2",
    "a~2",
    "A",
]


def table(keys: list, columns: int, *, nulls: bool, integers: bool = False) -> pa.Table:
    choose = random.Random(len(keys))
    cells = {
        f"image{i or ''}": pa.array(
            [None if nulls and choose.random() < 0.4 else choose.choice([PNG, JPG]) for _ in keys], pa.binary()
        )
        for i in range(columns)
    }
    kind = pa.int64() if integers else pa.string()
    return pa.table({"id": pa.array(keys, kind), **cells, "n": pa.array(range(len(keys)), pa.int64())})


def check(place: Path, path: Path, layout: str, *, arrays: bool | None = None) -> None:
    """Compare both catalogs of a shard, byte by byte. With `arrays` also how the first one was made."""
    made = []

    def noted(*arguments, **options):
        columns = key_columns(*arguments, **options)
        made.append(columns is not None)
        return columns

    key_columns = row_tables.key_columns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_tables, "key_columns", noted)
        make_catalog(str(path), str(place / "arrays"), Options(layout=layout))
        patch.setattr(row_tables, "key_columns", lambda *arguments, **options: None)
        make_catalog(str(path), str(place / "files"), Options(layout=layout))
    assert (place / "arrays").read_bytes() == (place / "files").read_bytes()
    assert arrays is None or made == [arrays]
    assert set(Catalog(str(place / "arrays")).tables) == {"shards", "segments", "columns"}


# Any two of a table's properties together.
PAIRS = [
    ("flat", False, 1, False),
    ("flat", True, 3, True),
    ("nested", False, 3, True),
    ("nested", True, 1, True),
    ("nested", True, 3, False),
]
ALL = list(itertools.product(["flat", "nested"], [False, True], [1, 3], [False, True]))


@pytest.mark.parametrize(
    ("layout", "nulls", "columns", "report"),
    [pytest.param(*each, marks=[] if each in PAIRS else [pytest.mark.variant]) for each in ALL],
)
def test_usual_keys(tmp_path, layout, nulls, columns, report):
    choose = random.Random(1)
    sets = {
        "long": [f"utterance-{number:06d}" for number in range(60)],
        "short": [f"Z{number}" for number in range(60)],
        "some": [f"{number}-ü" if number % 3 else None for number in range(60)],
        "dots": [f"{number}.{choose.choice(['jpg', 'png', 'x'])}" for number in range(60)],
    }
    for name, keys in sets.items():
        choose.shuffle(keys)
        data = table(keys, columns, nulls=nulls)
        cache = write_cache(tmp_path / name, [data], [len(data) + report])  # a wrong count makes an ERROR.txt
        check(tmp_path, cache / "shard-00000.arrow", layout, arrays=True)


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_integers_and_no_rows(tmp_path, layout):
    keys = random.Random(0).sample(range(-1000, 10**9), 300)
    check(tmp_path, write_arrow(tmp_path / "i.arrow", table(keys, 1, nulls=True, integers=True)), layout, arrays=True)
    empty = write_arrow(tmp_path / "empty.arrow", table(["a"], 1, nulls=False)[:0])
    check(tmp_path, empty, layout)


@pytest.mark.parametrize("keys", [["a", "b", "a"], ["x/a", "b"], ["a%41"], ["k" * 256], ["\x01"], [".touchfs"]])
def test_other_keys_are_named_one_by_one(tmp_path, keys):
    check(tmp_path, write_arrow(tmp_path / "x.arrow", table(keys, 2, nulls=False)), "nested", arrays=False)


@settings(max_examples=settings().max_examples // 2)
@given(
    keys=st.lists(st.sampled_from(ODD) | st.text("ab.jpgü~%/", max_size=8), min_size=1, max_size=12),
    layout=st.sampled_from(["flat", "nested"]),
    columns=st.integers(1, 2),
    nulls=st.booleans(),
    report=st.booleans(),
    unique=st.booleans(),
)
def test_odd_keys(tmp_path_factory, keys, layout, columns, nulls, report, unique):
    place = tmp_path_factory.mktemp("odd")
    data = table(list(dict.fromkeys(keys)) if unique else keys, columns, nulls=nulls)
    cache = write_cache(place / "cache", [data], [len(data) + report])
    check(place, cache / "shard-00000.arrow", layout)
