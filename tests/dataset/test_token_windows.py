"""Windows of tokens are what NumPy cuts out of all documents end to end, and what Megatron-LM's sample index says."""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from megatron import INT32, JPEG, UINT8, UINT16, begins, index_bytes, packed, tokens, write_prefix
from numpy.typing import NDArray

import touchfs
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import ChangedError, NotFoundError, UsageError
from touchfs.open_dataset import OpenDataset
from touchfs.view.token_plan import LENGTH_MAX, TokenPlan, parse_token_plan

Arrays = list[NDArray[Any]]


def numbered(lengths: Sequence[int], dtype: str = "<i4") -> Arrays:
    """Documents of these lengths. All tokens differ."""
    bounds = [*begins(lengths), sum(lengths)]
    return [np.arange(start, end).astype(dtype) for start, end in itertools.pairwise(bounds)]


def cut(stream: NDArray[Any], length: int, overlap: int, *, drop_last: bool) -> Arrays:
    starts = range(0, max(len(stream) - overlap, 0), length - overlap)
    windows = [stream[start : start + length] for start in starts]
    return [window for window in windows if not drop_last or len(window) == length]


def windows_of(path: str | Path, *plan: int, drop_last: bool = False) -> OpenDataset[Any]:
    return touchfs.open(path).tokens(*plan, drop_last=drop_last)


lengths = st.lists(st.integers(0, 12), max_size=12)
plans = st.integers(1, 20).flatmap(lambda length: st.tuples(st.just(length), st.integers(0, length - 1)))


@given(st.lists(lengths, min_size=1, max_size=3), plans, st.booleans(), st.sampled_from(["<i4", "<u2", "<i8"]))
@example([[]], (4, 0), False, "<i4")
@example([[0, 0]], (4, 3), False, "<u2")
@example([[3], [], [1, 0, 2]], (100, 1), False, "<i4")
def test_windows_are_cut_out_of_all_documents(
    shards: list[list[int]], plan: tuple[int, int], drop_last: bool, dtype: str
) -> None:
    code = {"<i4": INT32, "<u2": UINT16, "<i8": 5}[dtype]
    with tempfile.TemporaryDirectory() as place:
        documents = [numbered(each, dtype) for each in shards]
        for number, each in enumerate(documents):
            write_prefix(Path(place) / f"{number}", code, each)
        windows = windows_of(place, *plan, drop_last=drop_last)
        streams = [np.concatenate([np.zeros(0, dtype), *each]) for each in documents]
        expected = [(i, each) for i, stream in enumerate(streams) for each in cut(stream, *plan, drop_last=drop_last)]
        assert len(windows) == len(expected)
        for window, (shard, wanted) in zip(windows, expected, strict=True):
            assert window.shard == str(shard)
            array = window.array()
            assert array.dtype == wanted.dtype and np.array_equal(array, wanted)
            array += 1  # it is the caller's own
            assert np.array_equal(loaded(window["npy"]), wanted)
            assert len(window["npy"]) == window.content("npy").size
            check_documents(window, shards[shard], wanted)
        assert windows.read("npy", range(len(windows))) == [window["npy"] for window in windows]
        assert windows.data.lengths_at(np.arange(len(windows)), 0, "tokens").tolist() == [
            len(each) for _, each in expected
        ]


def loaded(data: bytes) -> NDArray[Any]:
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        file.write(data)
        file.flush()
        array: NDArray[Any] = np.load(file.name)
    return array


def check_documents(window: Any, lengths: list[int], tokens: NDArray[Any]) -> None:
    """The JSON and the bounds are those of the documents whose tokens the window has."""
    told = window.json()
    firsts = begins(lengths)
    owners = [document for document, length in enumerate(lengths) for _ in range(length)]
    first = told["first"]
    assert first == int(tokens[0]) and told["length"] == len(tokens) and told["window"] == window.ordinal
    expected = []
    for document, group in itertools.groupby(range(len(tokens)), lambda place: owners[first + place]):
        places = [*group]
        start, end = places[0], places[-1] + 1
        ends = first + end == firsts[document] + lengths[document]
        skipped = first + start - firsts[document]
        part = {"key": f"{document:08d}", "skipped": skipped, "start": start, "end": end, "ends": ends}
        expected.append(part)
    assert told["documents"] == expected
    bounds = window.array("cu_seqlens.npy")
    assert bounds.dtype == np.int32 and bounds.tolist() == [0, *(each["end"] for each in expected)]


def sample_starts(lengths: list[int], length: int, *, drop_last: bool) -> list[tuple[int, int]]:
    """Megatron-LM's rule of `build_sample_idx`: (document, offset) at which each sample begins, and at which the last
    one ends. A sample has `length` tokens and the one after them, with which the next sample begins.
    """
    new = sum(lengths) - 1
    count = new // length if drop_last else -(-new // length)
    starts, document, offset = [(0, 0)], 0, 0
    for _ in range(count):
        left = length + 1
        while left > lengths[document] - offset and document < len(lengths) - 1:
            left -= lengths[document] - offset
            document, offset = document + 1, 0
        offset = min(offset + left, lengths[document]) - 1
        starts.append((document, offset))
    return starts


@given(st.lists(st.integers(1, 12), min_size=1, max_size=12), st.integers(2, 9), st.booleans())
@example([1, 1], 2, False)
@example([9], 4, True)
def test_with_an_overlap_of_one_they_are_the_samples_of_megatron(
    lengths: list[int], length: int, drop_last: bool
) -> None:
    documents = numbered(lengths)
    starts = sample_starts(lengths, length, drop_last=drop_last)
    expected = []
    for (document, offset), (last, end) in itertools.pairwise(starts):
        pieces = [each.copy() for each in documents[document : last + 1]]
        pieces[-1] = pieces[-1][: end + 1]
        pieces[0] = pieces[0][offset:]
        expected.append(np.concatenate(pieces).tolist())
    with tempfile.TemporaryDirectory() as place:
        write_prefix(Path(place) / "corpus", INT32, documents)
        windows = windows_of(place, length + 1, 1, drop_last=drop_last)
        assert [window.array().tolist() for window in windows] == expected


def test_a_document_of_several_sequences_has_one_end(tmp_path: Path) -> None:
    sequences = numbered([3, 2, 0, 4, 1])
    write_prefix(tmp_path / "a", INT32, sequences, [0, 0, 3, 4, 5])
    windows = windows_of(tmp_path, 7)
    assert [window.array().tolist() for window in windows] == [[0, 1, 2, 3, 4, 5, 6], [7, 8, 9]]
    assert [window.array("cu_seqlens.npy").tolist() for window in windows] == [[0, 5, 7], [0, 2, 3]]
    assert [[part["key"] for part in window.json()["documents"]] for window in windows] == [
        ["00000001", "00000002"],
        ["00000002", "00000003"],
    ]


def test_images_and_damaged_sequences_are_left_out(tmp_path: Path) -> None:
    sequences = [tokens(1, 2), packed(JPEG), tokens(3), packed(JPEG), tokens(4, 5)]
    write_prefix(tmp_path / "mm" / "mm", INT32, sequences, [0, 2, 4, 5], [0, 1, 0, 1, 0])
    windows = windows_of(tmp_path / "mm", 4)
    assert [window.array().tolist() for window in windows] == [[1, 2, 3, 4], [5]]
    assert [np.load(file).tolist() for file in saved(tmp_path, windows)] == [[1, 2, 3, 4], [5]]
    assert windows[0].array("cu_seqlens.npy").tolist() == [0, 2, 3, 4]

    documents = numbered([3, 3, 3, 3])
    write_prefix(tmp_path / "bad" / "bad", INT32, documents)
    wrong = index_bytes(INT32, [3, 5, 3, 3], begins([12, 12, 12, 12]))
    (tmp_path / "bad" / "bad.idx").write_bytes(wrong)  # where the second one ends is in doubt, so the third is damaged
    windows = windows_of(tmp_path / "bad", 4)
    assert np.concatenate([window.array() for window in windows]).tolist() == [0, 1, 2, 9, 10, 11]


def saved(place: Path, windows: OpenDataset[Any]) -> list[Path]:
    for window in windows:
        (place / f"{window.ordinal}.npy").write_bytes(window["npy"])
    return [place / f"{number}.npy" for number in range(len(windows))]


def test_of_touchnet_the_text_is_cut_and_no_audio(tmp_path: Path) -> None:
    modalities = {"audio": np.dtype("<i4"), "audiotoken": np.dtype("<i4"), "texttoken": np.dtype("<u2")}
    with TouchNetWriter(tmp_path / "0", modalities) as writer:
        for number in range(3):
            text = np.full(2 + number, number, "<u2").tobytes()
            writer.add({"audio": bytes(8), "audiotoken": bytes(40), "texttoken": text})
    windows = windows_of(tmp_path, 4)
    assert [window.array().tolist() for window in windows] == [[0, 0, 1, 1], [1, 2, 2, 2], [2]]
    assert {window.array().dtype for window in windows} == {np.dtype("<u2")}
    assert windows[0].fields == dict.fromkeys(["npy", "cu_seqlens.npy", "json"], "texttoken")
    (tmp_path / "0" / "texttoken.bin").unlink()
    (tmp_path / "0" / "texttoken.idx").unlink()
    assert len(windows_of(tmp_path, 5)[0].array()) == 5


def test_a_dataset_without_tokens_says_so(tmp_path: Path) -> None:
    write_prefix(tmp_path / "bytes", UINT8, [np.frombuffer(JPEG, np.uint8)])
    with pytest.raises(UsageError, match=r"has no tokens: arrays of integers in \.bin/\.idx do"):
        windows_of(tmp_path, 4)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ((4, 4), "an overlap of 4 tokens in windows of 4: it is from 0 to 3"),
        ((4, -1), "an overlap of -1 tokens"),
        ((0, 0), "a window has from 1 to 2,000,000 tokens, not 0"),
        ((LENGTH_MAX + 1, 0), "not 2000001"),
    ],
)
def test_numbers_that_make_no_windows_are_refused(tmp_path: Path, plan: tuple[int, int], problem: str) -> None:
    write_prefix(tmp_path / "a", INT32, numbered([3]))
    with pytest.raises(UsageError, match=problem):
        windows_of(tmp_path, *plan)
    with pytest.raises(TypeError):
        touchfs.open(tmp_path).tokens(4.5)  # type: ignore[arg-type]


@given(plans, st.booleans())
def test_a_plan_has_one_name(plan: tuple[int, int], drop_last: bool) -> None:
    made = TokenPlan(*plan, drop_last)
    assert parse_token_plan(str(made)) == made


@pytest.mark.parametrize(
    "name", ["", "0", "04", "4,", "4,overlap=0", "4,overlap=01", "4,drop_last,overlap=1", "٤", "max=3"]
)
def test_other_names_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="write 4096"):
        parse_token_plan(name)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for number in range(3):
        write_prefix(tmp_path / f"part{number}", INT32, numbered([5 + number] * 10))
    return tmp_path


def test_a_set_of_windows_is_like_any_other(corpus: Path) -> None:
    ds = touchfs.open(corpus)
    windows = ds.tokens(8)
    assert [len(cut(np.arange(10 * (5 + i)), 8, 0, drop_last=False)) for i in range(3)] == [7, 8, 9]
    assert len(windows) == 24
    paths = [window.path("npy") for window in windows]
    assert paths[:2] == ["tokens/8/part0/000000.npy", "tokens/8/part0/000001.npy"]
    assert windows["part1/000002"] == windows[9] and windows[9].key == "part1/000002"
    for key in ("00000002", "part1/2", "part1/000099", "part9/000000", "part1", "part1/" + "1" * 5000):
        assert key not in windows
    assert [each.key for each in windows.where("length < 8")] == ["part0/000006", "part1/000007", "part2/000008"]
    again = pickle.loads(pickle.dumps(windows))
    assert [each.array().tolist() for each in again] == [each.array().tolist() for each in windows]
    shuffled = windows.shuffle(3)
    iterator = iter(shuffled)
    before = [next(iterator).key for _ in range(5)]
    state = shuffled.state_dict()
    rest = [each.key for each in iterator]
    assert sorted(before + rest) == sorted(each.key for each in windows)
    resumed = touchfs.open(corpus).tokens(8).shuffle(3)
    resumed.load_state_dict(state)
    assert [each.key for each in resumed] == rest
    with pytest.raises(UsageError):
        touchfs.open(corpus).tokens(9).shuffle(3).load_state_dict(state)
    with pytest.raises(TypeError, match="tokens is of a whole dataset"):
        ds.shuffle(1).tokens(8)
    with pytest.raises(NotFoundError, match=r"there are \.npy, \.cu_seqlens\.npy, \.json"):
        windows[0].content("wav")
    copied = pickle.loads(pickle.dumps(windows[3]))
    assert copied["npy"] == windows[3]["npy"] and copied == windows[3]
    assert copied.array().tolist() == windows[3].array().tolist(), "as that of a loader's worker"
    assert repr(copied) == repr(windows[3]) == "<tokens/8/part0: 'part0/000003', ordinal=3, npy+cu_seqlens.npy+json>"


def test_windows_written_as_samples_have_one_array(tmp_path: Path) -> None:
    write_prefix(tmp_path / "in/part", INT32, numbered([5] * 10))
    windows = touchfs.open(tmp_path / "in").tokens(8)
    windows.to_webdataset(str(tmp_path / "tars"))
    written = touchfs.open(tmp_path / "tars")
    assert [each.array().tolist() for each in written] == [each.array().tolist() for each in windows]


def test_a_changed_shard_is_no_longer_read(corpus: Path) -> None:
    windows = touchfs.open(corpus).tokens(8)
    assert windows[0].array().tolist() == [*range(8)]
    path = corpus / "part0.bin"
    path.write_bytes(bytes(path.stat().st_size))
    os.utime(path, (1, 1))
    windows.close()
    with pytest.raises(ChangedError):
        windows[0].array()
