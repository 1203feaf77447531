from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import touchfs.select.survivors
from touchfs.core.errors import FormatError, SourceError, UsageError
from touchfs.core.packed_bytes import PackedBytes
from touchfs.select.expression import parse_where
from touchfs.select.ids.names import open_file
from touchfs.select.predicates import Named
from touchfs.select.survivors import survivors

STEP = touchfs.select.survivors._STEP_SAMPLES


class Listed:
    """Samples from a list. `looked` counts how many were looked at."""

    def __init__(self, facts: list[dict[str, Any]], identity: str = "f") -> None:
        self.facts = facts
        self.identity = identity
        self.looked = self.unmeasured = 0

    def __len__(self) -> int:
        return len(self.facts)

    def records(self, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
        for facts in self.facts[start:stop]:
            self.looked += 1
            yield facts


class Keyed(Listed):
    """Samples with keys, in batches of 7."""

    def keys(self, start: int, stop: int) -> Iterator[PackedBytes]:
        for first in range(start, stop, 7):
            yield PackedBytes.of([facts["key"].encode() for facts in self.facts[first : min(first + 7, stop)]])


def numbered(count: int, identity: str = "f") -> Listed:
    return Listed([{"n": n, "info": {"odd": n % 2 == 1}} for n in range(count)], identity)


def found(samples: Listed, text: str, place: Path) -> list[int]:
    return list(survivors(samples, parse_where(text), str(place)).positions.tolist())


def only_file(place: Path) -> Path:
    (file,) = place.iterdir()
    return file


FACTS = st.dictionaries(st.sampled_from("ab"), st.integers(0, 3) | st.sampled_from(["", "x", None, True]))


@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(FACTS, max_size=30),
    st.sampled_from(["a < 2", 'not a == "x"', "a exists or b exists", "b in [true, 1] and a != 1", "not a exists"]),
    st.integers(1, 8),
)
def test_they_are_what_a_list_comprehension_finds(
    tmp_path_factory: pytest.TempPathFactory, facts: list[dict[str, Any]], text: str, step: int
) -> None:
    place, where, samples = tmp_path_factory.mktemp("survivors"), parse_where(text), Listed(facts)
    expected = [position for position, sample in enumerate(facts) if where.matches(sample)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(touchfs.select.survivors, "_STEP_SAMPLES", step)
        if facts and not all(any(field in sample for sample in facts) for (field,) in where.fields):
            with pytest.raises(UsageError, match="no sample has the field"):
                survivors(samples, where, str(place))
        else:
            for _ in range(2):
                try:
                    assert survivors(samples, where, str(place)).positions.tolist() == expected
                except UsageError as error:  # a comparison with a value of another type
                    assert "never" in str(error) and len(expected) in (0, len(facts))
    assert samples.looked == len(facts)


def test_over_several_steps(tmp_path: Path) -> None:
    count = 2 * STEP + 3
    told: list[tuple[int, int]] = []
    where = parse_where("info.odd == true")
    positions, _ = survivors(numbered(count), where, str(tmp_path), lambda done, total: told.append((done, total)))
    assert np.array_equal(positions, np.arange(1, count, 2))
    assert told == [(0, count), (STEP, count), (2 * STEP, count), (count, count)]


def test_it_is_mapped_and_cannot_be_written_to(tmp_path: Path) -> None:
    positions, _ = survivors(numbered(9), parse_where("n >= 5"), str(tmp_path))
    assert positions.dtype == np.uint32 and positions.tolist() == [5, 6, 7, 8]
    assert not positions.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        positions[0] = 1
    os.unlink(only_file(tmp_path))  # as a rebuilt one does, in effect
    assert positions.tolist() == [5, 6, 7, 8]


def test_positions_that_do_not_fit_into_32_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that begins is brought nearer."""
    monkeypatch.setattr(touchfs.select.survivors, "_SMALL_SAMPLES", 3)
    for count, dtype in [(3, np.uint32), (4, np.int64)]:
        samples = numbered(count, str(count))
        for _ in range(2):
            positions, _ = survivors(samples, parse_where("n >= 1"), str(tmp_path))
            assert positions.dtype == dtype and positions.tolist() == list(range(1, count))
        assert samples.looked == count


def test_it_is_made_once_for_each_dataset_and_meaning(tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    first, second = numbered(10), numbered(10, "other")
    assert found(first, "n < 3", place) == found(first, " ( n<3.0 ) ", place) == [0, 1, 2]
    assert (first.looked, len(os.listdir(place))) == (10, 1)
    assert found(first, "n < 4", place) == [0, 1, 2, 3]
    assert (first.looked, len(os.listdir(place))) == (20, 2)
    assert found(second, "n < 3", place) == [0, 1, 2]
    assert (second.looked, len(os.listdir(place))) == (10, 3)
    assert found(numbered(2), "n < 3", place) == [0, 1]  # one identity, but surely others


def test_fields_that_no_sample_has(tmp_path: Path) -> None:
    samples = numbered(10)
    for _ in range(2):
        with pytest.raises(UsageError, match=r'no sample has the field "a b", info\.even: name one of the \.json, or'):
            found(samples, 'n == 1 or info.even == true or "a b" exists', tmp_path)
    assert samples.looked == 10
    assert found(samples, "info.odd == true and n != 1 and not n > 4", tmp_path) == [3]
    samples.facts[9]["rare"] = 1  # which `or` never comes to
    samples.identity = "with a rare one"
    assert found(samples, "n >= 0 or rare == 2", tmp_path) == list(range(10))


@pytest.mark.parametrize(
    ("text", "values", "problem"),
    [
        ("f > 1", ["a", None], "f is a text, never a number: no sample can match"),
        ("f == 'a'", [1, 2.5], "f is a number, never a text: no sample can match"),
        ("f in ['a', true]", [1], "f is a number, never a text or true or false: no sample can match"),
        ("f contains 'a'", [1, {}], "f is a number or an object, never a text or a list: no sample can match"),
        ("f == 1", [[1]], "f is a list, never a number: no sample can match"),
        ("not f.x == 1", [{"x": "1"}], "f.x is a text, never a number: no sample can match"),
        ("f == null", [1], None),
        ("f != 'a'", [1], None),
        ("f > 1", [None], None),
        ("f > 1", ["a", 2], None),
        ("f in []", [1], None),
        ("f == 'dog' or f > 1", [Named(1, "dog")], None),
    ],
)
def test_comparisons_that_are_never_true(tmp_path: Path, text: str, values: list[Any], problem: str | None) -> None:
    samples = Listed([{"f": value} for value in values])
    for _ in range(2):  # also when the file is there
        if problem is None:
            found(samples, text, tmp_path)
            continue
        with pytest.raises(UsageError, match=problem):
            found(samples, text, tmp_path)


def test_unknown_durations_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    samples = Listed([{"duration": 1.0}, {}])
    samples.unmeasured = 1
    for _ in range(2):
        assert found(samples, "duration > 0", tmp_path) == [0]
        assert caplog.messages == ["where: 1 sample has no known duration: `touchfs index --full`"]
        caplog.clear()
    samples = Listed([{}, {}], "others")
    samples.unmeasured = 1204
    with pytest.raises(UsageError, match=r"duration: .*; 1,204 samples have no known duration: `touchfs index --full`"):
        found(samples, "duration > 0", tmp_path)


def test_no_samples(tmp_path: Path) -> None:
    for _ in range(2):
        assert found(numbered(0), "whatever exists", tmp_path) == []


def test_nothing_survives(tmp_path: Path) -> None:
    samples = numbered(5)
    for _ in range(2):
        assert found(samples, "n > 5", tmp_path) == []
    assert samples.looked == 5


def test_any_flipped_byte_or_cut_and_it_is_made_again(tmp_path: Path) -> None:
    samples, text, expected = numbered(7), "n >= 4 and info.odd exists", [4, 5, 6]
    assert found(samples, text, tmp_path) == expected
    file = only_file(tmp_path)
    whole = file.read_bytes()
    damaged = [whole[:size] for size in range(len(whole))]
    damaged += [whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(len(whole))]
    damaged += [whole + b"\0", whole + whole, bytes(len(whole)), b"\xff" * len(whole)]
    for data in damaged:
        file.write_bytes(data)
        samples.looked = 0
        assert found(samples, text, tmp_path) == expected
        assert (samples.looked, file.read_bytes(), only_file(tmp_path)) == (7, whole, file)


def test_the_file_of_another_expression_does_not_count(tmp_path: Path) -> None:
    """As long, sound, and under the name."""
    samples = numbered(7)
    assert found(samples, "n == 3", tmp_path) == [3]
    file = only_file(tmp_path)
    data = file.read_bytes()
    file.unlink()
    assert found(samples, "n == 4", tmp_path) == [4]
    only_file(tmp_path).write_bytes(data)
    assert found(samples, "n == 4", tmp_path) == [4]


def test_samples_that_cannot_be_read_leave_nothing(tmp_path: Path) -> None:
    class Damaged(Listed):
        def records(self, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
            yield {"n": 1}
            raise FormatError("damaged", path="shard", offset=7)

    with pytest.raises(FormatError, match="shard: damaged"):
        found(Damaged([{}, {}]), "n == 1", tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("there", [1, 3])
def test_more_or_fewer_records_than_samples(tmp_path: Path, there: int) -> None:
    class Uneven(Listed):
        def records(self, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
            return iter([{"n": 1}] * there)

    with pytest.raises(ValueError, match="zip"):
        found(Uneven([{}, {}]), "n == 1", tmp_path)
    assert os.listdir(tmp_path) == []


def test_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match=r"file: no index .* can be written"):
        found(numbered(1), "n == 0", tmp_path / "file")
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(SourceError, match=r"link: no index .* can be written"):
        found(numbered(1), "n == 0", tmp_path / "link")


SCRIPT = f"""
import sys
from touchfs.select.survivors import survivors
from touchfs.select.expression import parse_where

class Slow:
    identity = "f"
    unmeasured = 0

    def __len__(self):
        return 20_000

    def records(self, start, stop):
        if start == 3 * {STEP}:
            print("half", flush=True)
            sys.stdin.read()
        for n in range(start, stop):
            yield {{"n": n}}

print(survivors(Slow(), parse_where("n < 19000"), sys.argv[1]).positions.tolist() == list(range(19_000)), flush=True)
"""


def start(place: Path) -> subprocess.Popen[str]:
    """Another process, half of its work done."""
    arguments = [sys.executable, "-c", SCRIPT, os.fspath(place)]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "half\n"
    return process


def test_killed_half_way_it_leaves_nothing_that_counts(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
    assert only_file(tmp_path).name.startswith(".touchfs-tmp-")
    samples = numbered(20_000)
    assert found(samples, "n < 19000", tmp_path) == list(range(19_000))
    assert samples.looked == 20_000


def test_processes_at_once(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(2)]
    for process in processes:
        assert process.communicate(timeout=60)[0] == "True\n"
    samples = numbered(20_000)
    assert found(samples, "n < 19000", tmp_path) == list(range(19_000))
    assert (samples.looked, len(os.listdir(tmp_path))) == (0, 1)


def test_the_digest_is_of_what_survived(tmp_path: Path) -> None:
    one, same, other = (
        survivors(Listed([{"n": n} for n in numbers], f"{identity}"), parse_where("n > 1"), str(tmp_path)).digest
        for identity, numbers in enumerate([(1, 2, 3), (0, 5, 9), (2, 1, 3)])
    )
    assert one == same != other


def test_those_used_last_are_kept(tmp_path: Path) -> None:
    for number in range(150):
        found(numbered(3), "n == 1", tmp_path)
        found(numbered(3, f"{number}"), "n == 2", tmp_path)
    assert len(list(tmp_path.iterdir())) <= 101
    samples = numbered(3)
    assert found(samples, "n == 1", tmp_path) == [1]
    assert samples.looked == 0


def test_a_name_with_dots_is_shown_in_quotes(tmp_path: Path) -> None:
    for text, hint in (("info.x.y == 1", '"info.x.y"'), ("size.left.png > 1", 'size."left.png"')):
        with pytest.raises(UsageError) as refused:
            found(numbered(3), text, tmp_path)
        assert str(refused.value).endswith(f"; a name that has dots is in quotes: {hint}")
    for text in ("zz == 1", "size.png > 1", '"info.x.y" == 1', 'size."left.png" > 1'):
        with pytest.raises(UsageError) as refused:
            found(numbered(3), text, tmp_path)
        assert "dots" not in str(refused.value)


def test_a_fact_that_no_sample_has_is_not_what_to_name_instead(tmp_path: Path) -> None:
    for text in ('text contains "a"', "characters > 3 and n > 1"):
        with pytest.raises(UsageError) as refused:
            found(numbered(3), text, tmp_path)
        said, suggested = str(refused.value).split(": name one of the .json, or ")
        assert said.endswith(", as this dataset has no text")
        assert not {"text", "characters"} & {*suggested.split(", ")} and "duration" in suggested
    with pytest.raises(UsageError) as refused:
        found(numbered(3), "rate > 1", tmp_path)
    assert "no text" not in str(refused.value) and " rate," not in str(refused.value)


@pytest.fixture
def in_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A test for the keys 10 to 19 of 100."""
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", os.fspath(tmp_path / "scratch"))
    (tmp_path / "ids.txt").write_text("".join(f"{n}\n" for n in range(10, 20)))
    return f"key in @{tmp_path}/ids.txt"


@pytest.mark.parametrize(
    ("text", "kept", "looked"),
    [
        ("{} and n > 12", range(13, 20), 10),
        ("n > 12 and {}", range(13, 20), 10),
        ("{} or n < 12", range(20), 90),
        ("not {} and not n >= 10", range(10), 90),
        ("{} and (n < 12 or not {})", range(10, 12), 10),
        ("n < 12 and not (n < 5 or {})", range(5, 10), 90),
        ("{} and not {} and n > 3", range(0), 1),  # one tells that there is an n
    ],
)
def test_only_samples_about_which_keys_do_not_decide_are_looked_at(
    tmp_path: Path, in_list: str, text: str, kept: range, looked: int
) -> None:
    samples = Keyed([{"key": str(n), "n": n} for n in range(100)])
    where = parse_where(text.replace("{}", in_list), open_file)
    assert list(survivors(samples, where, str(tmp_path / "kept")).positions) == [*kept]
    assert samples.looked == looked


def test_what_no_sample_has_is_told_whatever_keys_decide(tmp_path: Path, in_list: str) -> None:
    """And not what only samples have that keys leave out."""
    facts: list[dict[str, Any]] = [{"key": str(n), "n": n} for n in range(100)]
    facts[50] |= {"rare": "x"}
    facts[15] |= {"odd": 1}
    facts[60] |= {"odd": "x"}

    def kept(text: str) -> list[int]:
        where = parse_where(f"{in_list} and {text}", open_file)
        return list(survivors(Keyed(facts), where, str(tmp_path / "kept")).positions)

    assert kept('rare == "x"') == kept('odd == "x"') == []
    assert kept('not rare == "x"') == [*range(10, 20)]
    with pytest.raises(UsageError, match="no sample has the field typo"):
        kept("not typo == 1")
    with pytest.raises(UsageError, match="n is a number, never a text"):
        kept('n == "x"')


def test_the_digest_does_not_depend_on_which_samples_were_looked_at(
    tmp_path: Path, in_list: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = Keyed([{"key": str(n), "n": n} | ({"rare": n} if n % 10 == 3 else {}) for n in range(100)])
    where = parse_where(f"{in_list} and n > 12 or rare == 23", open_file)
    digest = survivors(samples, where, str(tmp_path / "one")).digest
    monkeypatch.setattr(touchfs.select.survivors, "_STEP_KEYS", 9)
    monkeypatch.setattr(touchfs.select.survivors, "_STEP_SAMPLES", 3)
    assert survivors(samples, where, str(tmp_path / "two")).digest == digest
