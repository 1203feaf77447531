"""Lists of ids: `key in @FILE` selects what Python's `in` of a set does, and whatever is wrong with one is one line."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tars import write_tar

import touchfs
import touchfs.select.ids.id_list
import touchfs.select.ids.reader
import touchfs.select.survivors
from touchfs.catalog.table_builder import encode_key
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError, UsageError
from touchfs.core.packed_bytes import PackedBytes
from touchfs.format.id_hashes import SIZE_MAX, hash_keys, hashes_of
from touchfs.select.expression import parse_where
from touchfs.select.ids.id_list import IdList
from touchfs.select.ids.names import IDS_VARIABLE, give, open_file, open_given
from touchfs.select.predicates import Named
from touchfs.source.scratch.store import Scratch

TEXTS = st.lists(
    st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
)
NUMBERS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3))


@pytest.fixture(autouse=True)
def own_scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("scratch")
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", os.fspath(place))
    yield place


def written(place: Path, suffix: str, ids: list[Any]) -> str:
    path = place / f"ids{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"key": pa.array(ids, None if ids else pa.string())}), path, row_group_size=3)
    elif suffix == ".npy":
        np.save(path, np.array(ids, None if ids else "U1"))
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(each) + "\n" for each in ids))
    else:
        path.write_text("".join(f"{each}\n" for each in ids), newline="")
    return os.fspath(path)


def opened(path: str | Path, field: str = "key") -> IdList:
    return open_file(os.fspath(path), field)


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".jsonl", ".txt"])
@settings(max_examples=settings().max_examples // 3)
@given(ids=TEXTS, others=TEXTS, batch=st.integers(1, 4))
def test_texts_are_those_of_a_set(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, ids: list[str], others: list[str], batch: int
) -> None:
    path = written(tmp_path_factory.mktemp("ids"), suffix, ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(touchfs.select.ids.reader, "_BATCH_BYTES", 8 * batch)
        patch.setattr(touchfs.select.ids.reader, "_BATCH_IDS", 4 * batch)
        found = opened(path)
    assert (found.count, found.repeated) == (len(set(ids)), len(ids) - len(set(ids)))
    asked = [*ids, *others, "", "\ud800", "x" * (SIZE_MAX + 1)]
    assert found.have(PackedBytes.of([encode_key(each) for each in asked])).tolist() == [each in ids for each in asked]
    for each in asked:
        assert found.has(each) == (each in set(ids))
        assert found.has(Named(1, each)) == (each in set(ids))
    assert not found.has(1) and not found.has(None) and not found.has(["a"])


@pytest.mark.parametrize("suffix", [".parquet", ".npy", ".jsonl"])
@settings(max_examples=settings().max_examples // 3)
@given(ids=NUMBERS.filter(bool), others=NUMBERS)
def test_integers_are_those_of_a_set(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, ids: list[int], others: list[int]
) -> None:
    found = opened(written(tmp_path_factory.mktemp("ids"), suffix, ids))
    for each in [*ids, *others, 1 << 63, 1 << 70]:
        assert found.has(each) == found.has(Named(each, "x")) == (each in set(ids))
    assert found.has(2.0) == (2 in ids) and not found.has(True) and not found.has("2") and not found.has(1e400)


@given(TEXTS.filter(bool), st.randoms())
def test_hashes_of_all_are_those_of_one(ids: list[str], random: Any) -> None:
    values = [each.encode() * random.choice([1, 40]) for each in ids]
    hashes = hashes_of(PackedBytes.of(values), hash_keys(b"seed")).tolist()
    one = IdList.__new__(IdList)
    one._keys = hash_keys(b"seed").tolist()
    assert hashes == [one._hash(value) for value in values]


def test_ids_of_one_hash_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hashes(ids: PackedBytes, keys: Any) -> Any:
        return np.full(len(ids.lengths), 7 << 56, np.uint64)

    monkeypatch.setattr(touchfs.select.ids.id_list, "hashes_of", hashes)
    monkeypatch.setattr(IdList, "_hash", lambda self, value: 7 << 56)
    found = opened(written(tmp_path, ".txt", ["b", "a", "c", "a", "b", "bb"]))
    assert (found.count, found.repeated) == (4, 2)
    asked = ["a", "b", "c", "d", "bb", ""]
    assert [each for each in asked if found.has(each)] == ["a", "b", "c", "bb"]
    assert found.have(PackedBytes.of([each.encode() for each in asked])).tolist() == [True] * 3 + [False, True, False]


def test_lines_may_end_as_on_windows_and_the_last_one_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_bytes(b"\xef\xbb\xbfa\r\n\r\n\nb c\n\xff\nlast")
    found = opened(tmp_path / "ids.txt")
    assert found.count == 4 and all(map(found.has, ["a", "b c", "\udcff", "last"])) and not found.has("")


def test_pairs_of_datacomp_are_hexadecimal(tmp_path: Path) -> None:
    uids = ["00000000000000ff" + "f0e1d2c3b4a59687", "f" * 32]
    pairs = [(int(uid[:16], 16), int(uid[16:], 16)) for uid in uids]
    np.save(tmp_path / "subset.npy", np.array(pairs, np.dtype("u8,u8")))
    found = opened(tmp_path / "subset.npy", "uid")
    assert found.count == 2 and all(map(found.has, uids)) and not found.has("0" * 32)


def test_the_column_is_named_or_found(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "ids.parquet")
    pq.write_table(pa.table({"uid": ["a"], "key": ["b"], "number": [3.0]}), path)
    assert opened(path).has("b") and opened(path, "uid").has("a") and opened(f"{path}:uid").has("a")
    assert opened(f"{path}:number").has(3)
    pq.write_table(pa.table({"id": pa.array(["a", "b"]).dictionary_encode()}), tmp_path / "one.parquet")
    assert opened(tmp_path / "one.parquet").has("b")
    for kind in (pa.string_view(), pa.binary_view(), pa.json_()):  # however they lie there
        pq.write_table(pa.table({"key": pa.array(["a", "b"]).cast(kind)}), tmp_path / "kind.parquet")
        assert opened(tmp_path / "kind.parquet").has("b")
    (tmp_path / "ids.jsonl").write_text('{"uid": "a", "x": 1}\n\n{"uid": "b"}\n')
    assert opened(f"{tmp_path}/ids.jsonl", "uid").count == 2


def bad_lists() -> Iterator[tuple[str, Any, type[TouchfsError], str]]:
    two = pa.table({"uid": ["a"], "url": ["b"]})
    yield "a.parquet", two, UsageError, "has no column 'key', but uid, url: write @FILE:uid for the ids in uid"
    yield "a.parquet:id", two, UsageError, "has no column 'id': there are uid, url"
    many = pa.table({f"\n{number}": ["a"] for number in range(1000)})
    yield "a.parquet", many, UsageError, r"but \\n0, .*, \\n19 …: write @FILE:\\n0 for the ids in \\n0$"
    yield "a.parquet", pa.table({"key": ["a", None]}), FormatError, "row 2 of the column 'key' is null"
    yield "a.parquet", pa.table({"key": [1.0, 2.0, float("nan")]}), FormatError, "row 3 is nan: an id is a text or an"
    yield "a.parquet", pa.table({"key": [[1]]}), FormatError, "the column 'key' has the type list<"
    yield "a.parquet", pa.table({"key": pa.array([1 << 63], pa.uint64())}), FormatError, "row 1 is 9223372036854775808"
    twice = pa.table([["a"], ["b"]], names=["key", "key"])
    yield "a.parquet", twice, UsageError, "has 2 columns 'key'"
    yield "a.parquet", b"PAR1 no", FormatError, "the list cannot be read"
    yield "a.npy", np.array([1, np.nan]), FormatError, "row 2 is nan"
    yield "a.npy", np.array([[1]]), FormatError, "shape \\(1, 1\\): ids are texts or integers of shape"
    yield "a.npy", np.array([True]), FormatError, "an array of bool"
    yield "a.npy", b"\x93NUMPY\1\0\x10\0nonsense........", FormatError, "not an array of NumPy"
    yield "a.npy", b"", FormatError, "not an array of NumPy"
    yield "a.npy", b"\x93NUMPY\2\0\xff\xff\0\0" + b"(" * 65535, FormatError, "load securely.$"
    negative = b"\x93NUMPY\1\0\x40\0{'descr':'<i8','fortran_order':False,'shape':(-2,)}".ljust(74)
    yield "a.npy", negative, FormatError, "-2"
    yield "a.jsonl", b'"a"\n1\n', FormatError, "has texts and integers, as in line 2"
    yield "a.jsonl", b"{}\n", UsageError, "has no column 'key', but none at all"
    yield "a.jsonl", b"null\n", FormatError, "line 1 is null"
    yield "a.jsonl", b"1.5\n", FormatError, "line 1 is 1.5"
    yield "a.jsonl", b"NaN\n", FormatError, "line 1 is NaN"
    yield "a.jsonl", b"[" * 10**5 + b"\n", FormatError, "line 1 is not JSON"
    yield "a.jsonl", b"1" + b"0" * 3000 + b"\n", FormatError, "line 1 is 10{39}: an integer has at most 64 bits"
    yield "a.txt", b"x" * (SIZE_MAX + 1), FormatError, f"row 1 has more than {SIZE_MAX} bytes"
    yield "a.txt", None, NotFoundError, "no such file"
    yield "a.csv", b"a", UsageError, "FILE:COLUMN; a name with spaces is in quotes"


@pytest.mark.parametrize(("name", "content", "kind", "reason"), [*bad_lists()])
def test_a_wrong_list_is_one_line(
    tmp_path: Path, name: str, content: Any, kind: type[TouchfsError], reason: str
) -> None:
    path = tmp_path / name.partition(":")[0]
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, np.ndarray):
        np.save(path, content)
    elif content is not None:
        pq.write_table(content, path)
    with pytest.raises(kind, match=reason) as caught:
        opened(tmp_path / name)
    assert os.fspath(path) in str(caught.value) and "\n" not in str(caught.value)


def test_an_array_that_is_cut_off_and_an_object_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(1000))
    os.truncate(tmp_path / "a.npy", 4000)
    with pytest.raises(FormatError, match="cut off: 1000 ids of 8 bytes"):
        opened(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.array([{"a": 1}]), allow_pickle=True)
    with pytest.raises(FormatError, match="an array of object"):
        opened(tmp_path / "b.npy")
    (tmp_path / "d.txt").mkdir()
    with pytest.raises(UsageError, match="is not a file"):
        opened(tmp_path / "d.txt")


def test_a_list_is_sorted_once_for_its_content(
    tmp_path: Path, own_scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(written(tmp_path, ".txt", ["a", "b"]))
    os.rename(tmp_path / "ids.txt", tmp_path / "other.txt")
    monkeypatch.delattr(touchfs.select.ids.id_list, "EntrySorter")  # nothing is sorted again
    again = opened(tmp_path / "other.txt")
    assert again.spelled == first.spelled and again.has("a")
    assert len(Scratch.configured().stored()) == 1


def test_the_same_bytes_are_another_list_under_another_suffix(tmp_path: Path) -> None:
    """An empty .txt has no ids, and an empty .parquet is a download that failed."""
    for name in ("quoted.txt", "quoted.jsonl"):
        (tmp_path / name).write_bytes(b'"a"\n')
    assert opened(tmp_path / "quoted.txt").has('"a"') and opened(tmp_path / "quoted.jsonl").has("a")
    for name in ("none.txt", "none.parquet"):
        (tmp_path / name).touch()
    assert opened(tmp_path / "none.txt").count == 0
    with pytest.raises(FormatError, match="cannot be read"):
        opened(tmp_path / "none.parquet")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "g"])
def test_floats_that_are_integers(tmp_path: Path, kind: str) -> None:
    np.save(tmp_path / "ids.npy", np.array([1, -3], kind))
    assert [each for each in (1, -3, 2) if opened(tmp_path / "ids.npy").has(each)] == [1, -3]


@pytest.mark.parametrize("damage", ["bit", "cut", "planted"])
def test_a_damaged_sorted_list_is_made_again(tmp_path: Path, own_scratch: Path, damage: str) -> None:
    path = written(tmp_path, ".txt", ["a", "b"])
    opened(path)
    touchfs.select.ids.id_list._LISTS.forget()
    (stored,) = Scratch.configured().stored()
    data = bytearray(Path(stored).read_bytes())
    data[len(data) // 2] ^= 1
    os.chmod(stored, 0o666 if damage == "planted" else 0o600)
    Path(stored).write_bytes(data if damage != "cut" else data[:100])
    found = opened(path)
    assert found.has("a") and not found.has("c")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    members = {f"{key}.{ending}": data for key in "abcd" for ending, data in (("txt", b"x"), ("cls", b"7"))}
    write_tar(tmp_path / "shard.tar", members)
    return tmp_path / "shard.tar"


def test_python_names_a_file_and_the_content_is_in_the_order(pairs: Path, tmp_path: Path) -> None:
    samples = touchfs.open(pairs)

    def chosen(ids: list[str], name: str = "ids.txt") -> Any:
        written(tmp_path, ".txt", ids)
        os.replace(tmp_path / "ids.txt", tmp_path / name)
        return samples.where(f'key in @"{tmp_path / name}"')

    first = chosen(["b", "d", "zz"])
    assert [sample.key for sample in first] == ["b", "d"]
    state = chosen(["b", "d", "zz"], "other.txt").state_dict()
    first.load_state_dict(state)
    with pytest.raises(UsageError, match="state was saved"):
        chosen(["b", "d"]).load_state_dict(state)
    assert [s.key for s in samples.where(f"not key in @{tmp_path}/ids.txt and ordinal < 3")] == ["a", "c"]


JOINED = [f"{name}/{key}" for name in "ab" for key in range(10, 16)]
LISTS = st.sets(st.sampled_from([*JOINED, "c", ""]), min_size=1)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Any:
    place = tmp_path_factory.mktemp("joined")
    for name in "ab":
        write_tar(place / f"{name}.tar", {f"{key}.txt": b"x" for key in JOINED if key.startswith(name)})
    return touchfs.open(place)


@settings(max_examples=settings().max_examples // 4)
@given(one=LISTS, two=LISTS, step=st.integers(1, 13))
def test_all_keys_at_once_select_what_each_does(
    joined: Any, tmp_path_factory: pytest.TempPathFactory, one: set[str], two: set[str], step: int
) -> None:
    """Of two shards, with tests of keys alone and with others; in steps of a few keys."""
    place = tmp_path_factory.mktemp("lists")
    for name, ids in (("one", one), ("two", two)):
        os.replace(written(place, ".jsonl", [*ids]), place / f"{name}.jsonl")
    in_one, in_two = f"key in @{place}/one.jsonl", f"key in @{place}/two.jsonl"
    cases: dict[str, list[str]] = {
        in_one: [key for key in JOINED if key in one],
        f"not ({in_one} or {in_two})": [key for key in JOINED if key not in one | two],
        f"{in_one} and not {in_two}": [key for key in JOINED if key in one - two],
        f"{in_one} and ordinal < 3": [key for key in JOINED if key in one and key[-1] < "3"],
        f"ordinal < 3 or {in_one}": [key for key in JOINED if key in one or key[-1] < "3"],
        f"not ({in_one} and ordinal < 3)": [key for key in JOINED if not (key in one and key[-1] < "3")],
        f"{in_one} and (not {in_two} or ordinal < 3)": [
            key for key in JOINED if key in one and (key not in two or key[-1] < "3")
        ],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(touchfs.select.survivors, "_STEP_KEYS", step)
        for text, wanted in cases.items():
            assert [sample.key for sample in joined.where(text)] == wanted
            assert [sample.key for sample in (joined + joined).where(text)] == 2 * wanted
            chosen = joined.where("ordinal > 0").where(text)
            assert [sample.key for sample in chosen] == [key for key in wanted if not key.endswith("0")]


def test_ids_of_another_type_than_the_keys_are_told(pairs: Path, tmp_path: Path) -> None:
    path = written(tmp_path, ".npy", [1, 7])
    with pytest.raises(UsageError, match="where: key is a text, never a number: no sample can match"):
        touchfs.open(pairs).where(f"key in @{path}")
    assert len(touchfs.open(pairs).where(f"cls in @{path}")) == 4


def test_what_is_odd_but_clear_is_told(pairs: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert len(touchfs.open(pairs).where(f"key in @{written(tmp_path, '.txt', ['a', 'a', 'a'])}")) == 1
    assert "ids.txt: 2 ids are there more than once" in caplog.text
    assert len(touchfs.open(pairs).where(f"key in @{written(tmp_path, '.jsonl', [])}")) == 0
    assert "ids.jsonl: has no ids" in caplog.text


def test_the_canonical_text_has_the_content_and_a_pickle_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, ".txt", ["a"])
    where = parse_where(f"key   in @{path}", open_file)
    assert str(where) == f"key in @{opened(path).spelled}"
    assert pickle.loads(pickle.dumps(where)).matches({"key": "a"})
    assert str(parse_where('key in @"odd name.txt" and (a in @plain)')) == 'key in @"odd name.txt" and a in @plain'
    for text, column in [("key in @", 9), ("key in @ x", 10), ("key == @x", 8)]:
        with pytest.raises(UsageError, match=f"where, column {column}: expected"):
            parse_where(text)


def test_only_lists_that_were_given_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IDS_VARIABLE, "")
    path = written(tmp_path, ".txt", ["a"])
    with pytest.raises(UsageError, match=f"where: @{path} is no list that --ids NAME=FILE has given"):
        open_given(path, "key")
    give([f"good={path}"])
    assert open_given("good", "key").has("a")
    with pytest.raises(UsageError, match="and there are @good"):
        open_given("bad", "key")
    for wrong, reason in [("x", "write NAME=FILE"), ("a b=x.txt", "write NAME=FILE"), ("x=y.csv", "no list of ids")]:
        with pytest.raises(UsageError, match=reason):
            give([wrong])


def test_a_given_list_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IDS_VARIABLE, "")
    path = written(tmp_path, ".txt", ["a"])
    give([f"good={path}"])
    written(tmp_path, ".txt", ["b", "c"])
    touchfs.select.ids.id_list._LISTS.forget()
    assert open_given("good", "key").has("a")  # it is sorted already
    touchfs.select.ids.id_list._LISTS.forget()
    Scratch.configured().remove(Scratch.configured().stored())
    with pytest.raises(UsageError, match="has changed since --ids named it: start again"):
        open_given("good", "key")
