"""Overlays: the columns of a table are files and fields of the samples with its keys, as a dict says."""

from __future__ import annotations

import json
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tars import write_tar

import touchfs
import touchfs.indexing.overlays.named
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError, UsageError
from touchfs.core.names import NAME_MAX
from touchfs.indexing.overlays.rows import COLUMNS_MAX

KEYS = ["a", "b", "b c", "a-b", "über", "7"]
ROWS = [
    {"key": "a", "score": 1.5, "caption": 'one "quoted" \\ line\n', "good": True, "tags": ["x"]},
    {"key": "b", "score": None, "caption": "zwei ü", "good": None, "tags": []},
    {"key": "über", "score": -2.0, "caption": "", "good": False, "tags": None},
    {"key": "other", "score": 3.25, "caption": "nobody's", "good": True, "tags": ["y", "z"]},
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("TOUCHFS_SCRATCH_DIR", raising=False)
    yield


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two tars with a .txt for each key, and a .json for every second one."""
    for name, keys in (("0", KEYS[:3]), ("1", KEYS[3:])):
        members = {f"{key}.img": key.encode() for key in keys}
        members |= {f"{key}.json": json.dumps({"n": n, "lang": "en"}).encode() for n, key in enumerate(keys[::2])}
        write_tar(tmp_path / f"shards/{name}.tar", dict(sorted(members.items())))
    return tmp_path / "shards"


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def opened(shards: Path, *overlays: str | Path) -> Any:
    return touchfs.open(shards, overlay=overlays)


def fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "key" and value is not None}


def texts(row: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a row, by their extensions."""
    values = {name: value for name, value in fields(row).items() if not isinstance(value, list | dict)}
    return {
        f"{name}.txt": (value if isinstance(value, str) else json.dumps(value)).encode()
        for name, value in values.items()
    }


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_samples_have_the_files_and_fields_of_their_rows(shards, tmp_path, suffix, caplog):
    rows = {row["key"]: row for row in ROWS}
    plain = {sample.key: dict(sample) for sample in touchfs.open(shards)}
    samples = opened(shards, written(tmp_path / f"notes{suffix}", ROWS))
    assert [sample.key for sample in samples] == [sample.key for sample in touchfs.open(shards)]
    for sample in samples:
        row = rows.get(sample.key)
        added = {} if row is None else texts(row)
        made = {name: data for name, data in sample.items() if name != "notes.overlay.json"}
        assert made == plain[sample.key] | added
        if row is not None:
            assert json.loads(sample["notes.overlay.json"]) == fields(row)
        stored = json.loads(plain[sample.key].get("json", "{}"))
        assert sample.overlaid() == (fields(row) if row else {})
        if row or stored:
            assert sample.json() == (fields(row) if row else {}) | stored
            assert pickle.loads(pickle.dumps(sample)).json() == sample.json()
    assert [each.key for each in samples.where("score < 2")] == ["a", "über"]
    assert [each.key for each in samples.where('tags contains "x" and good == true')] == ["a"]
    assert [each.key for each in samples.where('caption contains "ü" and size."caption.txt" == 7')] == ["b"]
    assert [each.key for each in samples.where('lang == "en" and score exists')] == ["a"]
    assert f"{tmp_path}/notes{suffix}: 1 row is of no sample" in caplog.text
    assert "3 of 6 samples have no row" in caplog.text


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
VALUES = st.one_of(TEXTS, st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
COLUMN = st.sampled_from(["a", "b c", "x/y", "é", "img", "caption", "%41"])
TABLES = st.dictionaries(
    st.sampled_from([*KEYS, "other", "./a", "A"]),
    st.dictionaries(COLUMN, st.none() | VALUES | st.lists(VALUES, max_size=2), max_size=4),
    max_size=8,
)


@settings(
    max_examples=min(settings().max_examples, 25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(tables=st.lists(TABLES, min_size=1, max_size=2))
def test_any_overlay_is_a_dict(shards, tmp_path_factory, tables):
    """Two overlays: the first one counts where both have a column."""
    place = tmp_path_factory.mktemp("overlays")
    paths = []
    for number, table in enumerate(tables):
        rows = [row | {"key": key} for key, row in table.items()]
        paths.append(written(place / f"o{number}.jsonl", rows))
    for sample in opened(shards, *paths):
        merged: dict[str, Any] = {}
        for table in tables:
            merged = fields(table.get(sample.key, {})) | merged
        assert sample.overlaid() == merged
        shown = {name.replace("%25", "%"): data for name, data in sample.items()}
        for number, table in enumerate(tables):
            if sample.key in table:
                assert json.loads(sample[f"o{number}.overlay.json"]) == fields(table[sample.key])
                if not number:
                    assert {
                        name.replace("%25", "%"): data for name, data in texts(table[sample.key]).items()
                    }.items() <= {name.replace("%2F", "/"): data for name, data in shown.items()}.items()


def test_a_file_of_the_shard_wins(tmp_path, caplog):
    write_tar(tmp_path / "s.tar", {"a.caption.txt": b"stored", "a.json": b'{"caption": "in JSON"}', "b.jpg": b"j"})
    rows = [{"key": "a", "caption": "new", "n": 1}, {"key": "b", "caption": "new", "n": 2}]
    first, second = opened(tmp_path / "s.tar", written(tmp_path / "o.jsonl", rows))
    assert first["caption.txt"] == b"stored" and first.json() == {"caption": "in JSON", "n": 1}
    assert second["caption.txt"] == b"new" and second.json() == {"caption": "new", "n": 2}
    assert "1 file is left out, as shards have files of these names: *.caption.txt" in caplog.text


def test_another_overlay_makes_only_its_own_catalogs(shards, tmp_path, monkeypatch):
    path = written(tmp_path / "o.jsonl", ROWS)
    before = opened(shards, path)
    order = before.shuffle(7).state_dict()
    shards_before = before._samples.dataset.shards
    base = {shard.base_catalog: os.stat(shard.base_catalog).st_mtime_ns for shard in shards_before}
    monkeypatch.setattr("touchfs.indexing.index_task.make_catalog", None)  # no shard is indexed again
    written(path, [row | {"caption": "changed"} for row in ROWS])
    after = opened(shards, path)
    assert after["a"]["caption.txt"] == b"changed" and before["a"]["caption.txt"] != b"changed"
    assert {each: os.stat(each).st_mtime_ns for each in base} == base
    assert {shard.catalog for shard in after._samples.dataset.shards}.isdisjoint(base)
    with pytest.raises(TouchfsError):
        after.shuffle(7).load_state_dict(order)
    again = touchfs.open(shards)
    assert "caption.txt" not in again["a"]


def test_a_table_of_stored_rows_says_that_it_leaves_out_an_overlay(tmp_path, caplog):
    rows = pa.table({"key": ["a", "b"], "n": [1, 2]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    pq.write_table(pa.table({"key": ["a", "b"], "score": [3, 4]}), tmp_path / "scores.parquet")
    found = opened(tmp_path / "rows.parquet", tmp_path / "scores.parquet").to_arrow()
    assert found.column_names == ["key", "n"] and "columns of overlays are left out" in caplog.text
    caplog.clear()
    touchfs.open(tmp_path / "rows.parquet").to_arrow()
    assert "overlays" not in caplog.text


def test_an_overlay_is_read_once(shards, tmp_path, monkeypatch, caplog):
    path = written(tmp_path / "o.parquet", ROWS)
    opened(shards, path)
    caplog.clear()
    monkeypatch.setattr("touchfs.indexing.overlays.indexer.join_catalog", None)
    monkeypatch.setattr("touchfs.indexing.overlays.overlay.OverlayRows", None)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    assert opened(shards, path)["a"]["score.txt"] == b"1.5"
    assert opened(shards, path.rename(moved / "o.parquet"))["a"]["score.txt"] == b"1.5"
    assert not caplog.records


@pytest.mark.parametrize("kind", ["scratch", "catalog", "facts"])
def test_damaged_files_are_made_again(shards, tmp_path, kind):
    path = written(tmp_path / "o.parquet", ROWS)
    dataset = opened(shards, path)._samples.dataset
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "touchfs"
    names = {"scratch": "scratch/*.scratch", "catalog": "index/*.overlay-*.arrow", "facts": "index/*.overlay-*.json"}
    found = {each: each.read_bytes() for each in cache.glob(names[kind])}
    assert found
    for each, data in found.items():
        each.unlink()  # what is mapped stays
        each.write_bytes(data[:-9] + b"\1" * 9)
    if kind == "scratch":
        touchfs.indexing.overlays.named._OPEN.forget()
        for shard in dataset.shards:
            os.unlink(shard.catalog)
    assert opened(shards, path)["a"]["score.txt"] == b"1.5"
    assert {each: each.read_bytes() for each in found} == found


def test_keys_that_end_like_files_directories_and_long_names(tmp_path):
    long = "k" * 240
    members = {"a.img.img": b"1", "d/e/x.img": b"2", "d/x.img": b"3", f"{long}.img": b"4", "./p.img": b"5"}
    write_tar(tmp_path / "s.tar", members)
    keys = [sample.key for sample in touchfs.open(tmp_path / "s.tar", key_rule="last-dot")]
    rows = [{"key": key, "caption": key, "a long name of a column": 1} for key in keys]
    samples = touchfs.open(tmp_path / "s.tar", key_rule="last-dot", overlay=written(tmp_path / "o.jsonl", rows))
    assert [sample.text or sample["caption.txt"].decode() for sample in samples] == keys
    for sample in samples:
        assert samples[sample.key]["caption.txt"] == sample.key.encode()
        assert max(len(part) for part in sample.path("caption.txt").split("/")) <= NAME_MAX


def test_every_kind_of_shard_is_joined(tmp_path):
    (tmp_path / "lines.jsonl").write_text('{"key": "a", "n": 1}\n{"key": "b", "n": 2}\n')
    pq.write_table(pa.table({"key": ["a", "b"], "image": [b"1", b"2"], "n": [1, 2]}), tmp_path / "rows.parquet")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "numbered.parquet")
    overlay = written(tmp_path / "o.jsonl", [{"key": "b", "score": 0.5}])
    for name in ("lines.jsonl", "rows.parquet"):
        samples = opened(tmp_path / name, overlay)
        assert [each.json().get("score") for each in samples] == [None, 0.5], name
        assert [each.key for each in samples.where("score == 0.5 and n == 2")] == ["b"]
    assert ["score.txt" in each for each in opened(tmp_path / "numbered.parquet", overlay)] == [False, False]


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_rows_in_directories_are_joined(tmp_path, layout):
    pq.write_table(pa.table({"key": ["a", "b"], "image": [b"1", b"2"], "n": [1, 2]}), tmp_path / "rows.parquet")
    overlay = written(tmp_path / "o.jsonl", [{"key": "b", "score": 0.5}])
    samples = touchfs.open(tmp_path / "rows.parquet", layout=layout, overlay=overlay)
    assert samples["b"]["score.txt"] == b"0.5" and b"2" in samples["b"].values()
    end = "b/score.txt" if layout == "nested" else "b.score.txt"
    assert samples["b"].path("score.txt") == f"shards/rows/{end}"


def parquet(columns: Mapping[str, Any]) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(dict(columns)), path)


REFUSED = {
    "a column is missing": (
        parquet({"uid": ["a"], "n": [1]}),
        "has no column key, __key__ or id, but uid, n: write FILE:uid",
    ),
    "integers": (parquet({"key": [1]}), "the column 'key' has the type int64: keys of samples are texts"),
    "a null key": (parquet({"key": ["a", None]}), "the key in row 2 is null"),
    "two rows of a key": (
        parquet({"key": ["a", "b", "a"]}),
        "rows 1 and 3 have the key 'a': leave one row for each key",
    ),
    "many columns": (parquet({"key": ["a"], **{f"c{n}": [n] for n in range(10_000)}}), "has 10,000 columns beside"),
    "no columns": (parquet({}), "has no columns"),
    "cut off": (lambda path: path.write_bytes(b"PAR1" + bytes(50)), "the overlay cannot be read: "),
    "empty": (lambda path: path.write_bytes(b""), "the overlay cannot be read: "),
    "a directory": (Path.mkdir, "is not a file: name a .parquet or .jsonl"),
    "a long key": (parquet({"key": ["k" * (1 << 17)]}), "the key in row 1 has more than 65,536 bytes"),
}
LINES = {
    "no JSON": ("{", "line 1 is not JSON"),
    "no object": ("[1]", "line 1 is not an object"),
    "integers": ('{"key": 3}', "the key in row 1 is 3: keys of samples are texts"),
    "no key": ('{"key": "a"}\n{"n": 1}', "the key in row 2 is null"),
    "no column": ('{"a": "a"}', "has no column key, __key__ or id, but a: write FILE:a"),
    "two rows of a key": ('{"key": "a"}\n\n{"key": "a"}', "rows 1 and 2 have the key 'a'"),
    "many fields": (
        json.dumps({"key": "a"} | {f"c{n}": n for n in range(COLUMNS_MAX + 1)}),
        f"has over {COLUMNS_MAX} fields beside its keys",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_parquet_file_is_refused_in_one_line(shards, tmp_path, case):
    write, problem = REFUSED[case]
    write(tmp_path / "o.parquet")
    with pytest.raises((UsageError, FormatError)) as refused:
        opened(shards, tmp_path / "o.parquet")
    assert f"{tmp_path}/o.parquet: {problem}" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("case", LINES)
def test_bad_lines_are_refused_in_one_line(shards, tmp_path, case):
    line, problem = LINES[case]
    (tmp_path / "o.jsonl").write_text(line)
    with pytest.raises((UsageError, FormatError)) as refused:
        opened(shards, tmp_path / "o.jsonl")
    assert f"{tmp_path}/o.jsonl: {problem}" in str(refused.value) and "\n" not in str(refused.value)


def test_names_that_are_no_overlays_are_refused(shards, tmp_path):
    with pytest.raises(UsageError, match=r"o\.csv: is not an overlay: name a \.parquet or \.jsonl"):
        opened(shards, tmp_path / "o.csv")
    with pytest.raises(NotFoundError, match=r"o\.parquet"):
        opened(shards, tmp_path / "o.parquet")
    (tmp_path / "x").mkdir()
    same = written(tmp_path / "o.jsonl", ROWS), written(tmp_path / "x/o.parquet", ROWS)
    with pytest.raises(UsageError, match="2 overlays have the name 'o': rename all but one"):
        opened(shards, *same)


def test_odd_values_are_texts_or_left_out(shards, tmp_path, caplog):
    columns = {
        "uid": pa.array(["a", "b"]).dictionary_encode(),
        "nan": [float("nan"), float("inf")],
        "bytes": [b"1", b"2"],
        "day": pa.array([0, 1], pa.date32()),
        "kind": pa.array(["x", None]).dictionary_encode(),
        "deep": [{"b": [1, 2]}, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "o.parquet")
    samples = opened(shards, f"{tmp_path}/o.parquet:uid")
    assert samples["a"].overlaid() == {"nan": "NaN", "day": "1970-01-01", "kind": "x", "deep": {"b": [1, 2]}}
    assert samples["b"].overlaid() == {"nan": "Infinity", "day": "1970-01-02"}
    assert samples["a"]["nan.txt"] == b"NaN" and "deep.txt" not in samples["a"] and "bytes.txt" not in samples["a"]
    assert [each.key for each in samples.where("deep.b contains 1")] == ["a"]
    assert "columns of bytes are left out: bytes" in caplog.text


def test_a_column_may_have_any_name(shards, tmp_path):
    """Also half of a surrogate pair, which only JSON can have."""
    names = ["", ".", "..", "a/b", "nl\nx", "\ud800", "n" * 300, "json", "o.overlay.json"]
    samples = opened(shards, written(tmp_path / "o.jsonl", [{"key": "a", **dict.fromkeys(names, "v")}]))
    assert samples["a"].overlaid() == dict.fromkeys(names, "v")
    assert sum(data == b"v" for data in samples["a"].values()) == len(names)


def test_empty_and_strange_overlays_are_told(shards, tmp_path, caplog):
    samples = opened(
        shards, written(tmp_path / "none.jsonl", []), written(tmp_path / "o.jsonl", [{"key": "zz", "n": 1}])
    )
    assert all(not sample.overlaid() for sample in samples)
    assert "o.jsonl: none of its 1 keys is that of a sample" in caplog.text
    assert "none.jsonl: has no rows" in caplog.text


def test_a_surplus_row_is_counted_once_if_two_shards_have_a_key(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    for name in "01":
        write_tar(tmp_path / f"s/{name}.tar", {"a.img": b"1", f"b{name}.img": b"2"})
    rows = [{"key": key, "n": 1} for key in ("a", "b0", "x", "y")]
    opened(tmp_path / "s", written(tmp_path / "o.jsonl", rows))
    assert "2 rows are of no sample" in caplog.text and "1 of 4 samples have no row" in caplog.text


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 1 << 20), byte=st.integers(0, 255))
def test_a_damaged_overlay_is_an_error_or_other_values(shards, tmp_path_factory, place, byte):
    path = written(tmp_path_factory.mktemp("damaged") / "o.parquet", ROWS)
    data = bytearray(path.read_bytes())
    data[place % len(data)] = byte
    path.write_bytes(data)
    with suppress(TouchfsError):
        assert len([dict(sample) for sample in opened(shards, path)]) == len(KEYS)
