import hashlib
import json
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from touchfs.core.errors import UsageError
from touchfs.view.plan import MergePlan, Span, as_json, joined_text, merge, parse_plan, span_of
from touchfs.view.segments import is_version

SECONDS = st.decimals(0, 10**9, places=6) | st.integers(0, 100).map(Decimal) | st.decimals(0, 3, places=1)
VERSIONS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("%,/=é你"), max_size=20)
# Of a short recording, in which all matters: pauses, overlaps, equal starts, segments with nothing in them.
SPANS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 15)), max_size=30)
RATES = st.sampled_from([1, 3, 10, 16])


@st.composite
def plans(draw: st.DrawFn) -> MergePlan:
    longest = draw(SECONDS)
    seed = draw(st.none() | st.integers(0, 2**63 - 1))
    text = draw(VERSIONS)
    assume(not text or is_version(text))
    try:
        return MergePlan(
            longest,
            min(longest, draw(SECONDS)),
            draw(SECONDS),
            text,
            seed,
            0 if seed is None else draw(st.integers(0, 9) | st.integers(0, 2**63 - 1)),
            draw(st.none() | st.integers(1, 1_000_000)),
            draw(st.sampled_from([None, "mono", "0", "7"])),
            draw(st.sampled_from(["wav", "f32", "flac"])),
        )
    except UsageError as error:
        assert "bytes" in str(error)
        assume(False)
        raise


def plan(name: str) -> MergePlan:
    return parse_plan(name)


@given(plans(), st.randoms())
def test_a_plan_is_its_name(made: MergePlan, random: Any) -> None:
    name = str(made)
    assert parse_plan(name) == made
    assert str(parse_plan(name)) == name
    assert hash(parse_plan(name)) == hash(made)
    assert len(name.encode()) <= 255
    assert "/" not in name and "\0" not in name and "\n" not in name
    parts = name.split(",")
    random.shuffle(parts)
    assert parse_plan(",".join(parts)) == made


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("max=30", "max=30"),
        ("gap=0.5,max=30", "max=30,gap=0.5"),
        ("max=030.0,min=0,gap=1.000000", "max=30"),
        ("epoch=1,seed=7,text=whisper,gap=0,min=5,max=30", "max=30,min=5,gap=0,text=whisper,seed=7,epoch=1"),
        ("max=30,seed=0,epoch=0", "max=30,seed=0"),
        ("max=0.000001", "max=0.000001"),
        ("max=1000000000", "max=1000000000"),
        ("max=100.10", "max=100.1"),
        ("max=9,text=a=b", "max=9,text=a=b"),
        ("max=9,text=a%2cb%2F%25%41", "max=9,text=a%2Cb%2F%25A"),
        ("max=9,text=%E4%BD%A0é", "max=9,text=你é"),
        ("max=9,text=\n", "max=9,text=%0A"),
        ("max=0.0", "max=0"),
        ("max=0,min=2", "max=0,min=2"),
        ("max=30,rate=8000", "max=30,rate=8000"),
        ("format=flac,channels=mono,rate=08000,max=30,gap=1", "max=30,rate=8000,channels=mono,format=flac"),
        ("max=30,channels=01,format=wav,seed=1", "max=30,seed=1,channels=1"),
        ("max=30,format=f32", "max=30,format=f32"),
    ],
)
def test_canonical_names(given: str, canonical: str) -> None:
    assert str(parse_plan(given)) == canonical


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "'' is not one of max=, min="),
        ("30", "'30' is not one of"),
        ("max", "'max' is not one of"),
        ("max=", "max is '', not seconds"),
        ("max=30,", "'' is not one of"),
        ("max=30,,gap=1", "'' is not one of"),
        ("gap=1", "max is missing"),
        ("max=30,max=30", "max is there twice"),
        ("max=30,Max=30", "'Max=30' is not one of"),
        ("max=30, gap=1", "' gap=1' is not one of"),
        ("max=30,speed=2", "'speed=2' is not one of"),
        ("max=30,__class__=2", "is not one of"),
        ("max=1,5", "'5' is not one of"),
        ("max= 1", "not seconds"),
        ("max=1\n", "not seconds"),
        ("max=" + "9" * 200, "not seconds"),
        ("max=30,min=-1", "min is '-1', not seconds"),
        ("max=30,gap=inf", "gap is 'inf', not seconds"),
        ("max=30,min=31", "min is 31, more than max, 30"),
        ("max=30,seed=-1", "seed is '-1', not a whole number"),
        ("max=30,seed=1.0", "not a whole number"),
        ("max=30,seed=", "not a whole number"),
        ("max=30,seed=1_0", "not a whole number"),
        ("max=30,seed=\u0663", "not a whole number"),
        ("max=30,seed=9223372036854775808", "not a whole number"),
        ("max=30,seed=1,epoch=x", "epoch is 'x', not a whole number"),
        ("max=30,epoch=1", "epoch needs a seed"),
        ("max=30,epoch=0", "epoch needs a seed"),
        ("max=30,text=", "text names no version"),
        ("max=30,text=%", "not followed by two hex digits"),
        ("max=30,text=%4", "not followed by two hex digits"),
        ("max=30,text=%\u0663\u0663", "not followed by two hex digits"),
        ("max=30,text=%FF", "not UTF-8"),
        ("max=30,text=\udcff", "not UTF-8"),
        ("max=30,text=%ED%A0%80", "not UTF-8"),
        ("max=30,rate=8k", "rate is '8k', not a whole number"),
        ("max=30,rate=0", "1 to 1,000,000 Hz"),
        ("max=30,rate=1000001", "1 to 1,000,000 Hz"),
        ("max=30,channels=left", "channels is 'left', neither mono nor the number of a channel"),
        ("max=30,channels=-1", "neither mono nor"),
        ("max=30,channels=100", "it is mono, or the number of a channel"),
        ("max=30,format=mp3", "format=mp3: it is wav, flac or f32"),
        ("max=30,format=", "it is wav, flac or f32"),
        ("max=30,text=" + "a" * 201, "no version of a text"),
        ("max=30,text=" + "a" * 260, "over 255 bytes"),
        ("max=30,text=" + "\x01" * 100, "no version of a text"),
    ],
)
def test_malformed_plans(name: str, words: str) -> None:
    with pytest.raises(UsageError, match="plan") as caught:
        parse_plan(name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "number",
    [
        *["-1", "+1", "1e3", "inf", "nan", "Infinity", "1_0", "0x1", ".5", "5.", "1.2.3", "\u0663", "1\uff13"],
        *["1000000000.000001", "1000000001", "0.0000001", "30s", "1;5"],
    ],
)
@pytest.mark.parametrize("name", ["max", "min", "gap"])
def test_numbers_that_are_no_seconds(name: str, number: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is .* not seconds as a plain decimal"):
        parse_plan(f"{name}={number}" if name == "max" else f"max=30,{name}={number}")


@given(st.text(max_size=40) | st.text(st.sampled_from("maxingptedoch=,0123456789.%eE+-_ \ud800"), max_size=40))
@example("max=1,text=\ud800")
def test_any_name(name: str) -> None:
    try:
        made = parse_plan(name)
    except UsageError:
        return
    assert parse_plan(str(made)) == made


@pytest.mark.parametrize(
    "values",
    [
        {"max": Decimal("NaN")},
        {"max": Decimal("Infinity")},
        {"max": Decimal(-1)},
        {"max": Decimal("0.0000001")},
        {"max": Decimal(1), "min": Decimal(2)},
        {"max": Decimal(1), "seed": -1},
        {"max": Decimal(1), "epoch": 1},
        {"max": Decimal(1), "text": "\ud800"},
        {"max": Decimal(1), "rate": 0},
        {"max": Decimal(1), "channels": "00"},
        {"max": Decimal(1), "format": "WAV"},
        {"max": Decimal("100000000.000001"), "gap": Decimal("100000000.000001"), "text": "%" * 66, "seed": 2**62},
    ],
)
def test_values_that_make_no_plan(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        MergePlan(**values)


def target_of(made: MergePlan, key: str, run: int, rate: int) -> int:
    """As the docstring of `merge` says it."""
    longest = int(Fraction(made.max) * rate)
    if made.seed is None:
        return longest
    least = min(-int(-Fraction(made.min) * rate // 1), longest)
    digest = hashlib.blake2b(f"{made.seed} {made.epoch} {run} {key}".encode(), digest_size=8).hexdigest()
    bits = bin(int(digest, 16))[2:].zfill(64)[:53]
    return least + (longest - least + 1) * int(bits, 2) // 2**53


def slowly_merged(made: MergePlan, key: str, spans: list[Span], rate: int) -> list[list[int]]:
    """The same, one segment at a time from all that are left, with fractions of seconds for times."""
    left = {number for number, (_, length) in enumerate(spans) if length}
    runs: list[list[int]] = []
    while left:
        target = Fraction(target_of(made, key, len(runs), rate), rate)
        run: list[int] = []
        while left:
            following = min(left, key=lambda number: (spans[number][0], number))
            start = Fraction(spans[following][0], rate)
            if run:
                end = max(Fraction(sum(spans[number]), rate) for number in run)
                together = max(end, Fraction(sum(spans[following]), rate)) - Fraction(spans[run[0]][0], rate)
                if start - end > Fraction(made.gap) or together > target:
                    break
            run.append(following)
            left.remove(following)
        runs.append(run)
    return [run for run in runs if Fraction(span_of(spans, run)[1], rate) >= Fraction(made.min)]


@st.composite
def small_plans(draw: st.DrawFn) -> MergePlan:
    longest = draw(st.decimals("0.1", 20, places=2))
    seed = draw(st.none() | st.integers(0, 99))
    return MergePlan(
        longest,
        min(longest, draw(st.just(Decimal(0)) | st.decimals(0, 10, places=2))),
        draw(st.decimals(0, 3, places=2)),
        "",
        seed,
        0 if seed is None else draw(st.integers(0, 2)),
    )


@given(small_plans(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5), SPANS, RATES)
@example(MergePlan(Decimal("0.15"), Decimal("0.15"), seed=1), "a", [(0, 1), (1, 1)], 10)
def test_runs_are_those_of_the_slow_way(made: MergePlan, key: str, spans: list[Span], rate: int) -> None:
    runs = merge(made, key, spans, rate)
    assert runs == merge(made, key, spans, rate) == slowly_merged(made, key, spans, rate)
    used = [number for run in runs for number in run]
    assert len(set(used)) == len(used), "a segment is used twice"
    assert used == sorted(used, key=lambda number: (spans[number][0], number)), "not in the order of time"
    if not made.min:
        assert len(used) == sum(1 for _, length in spans if length), "a segment is lost"
    for run in runs:
        offset, length = span_of(spans, run)
        assert all(offset <= spans[number][0] < sum(spans[number]) <= offset + length for number in run)
        assert len(run) == 1 or length <= Fraction(made.max) * rate
        assert length >= Fraction(made.min) * rate


def test_pauses() -> None:
    spans = [(0, 10), (15, 10), (31, 10)]
    assert merge(plan("max=100,gap=5"), "k", spans, 1) == [[0, 1], [2]]
    assert merge(plan("max=100,gap=6"), "k", spans, 1) == [[0, 1, 2]]
    assert merge(plan("max=100,gap=4.999999"), "k", spans, 1) == [[0], [1], [2]]
    assert merge(plan("max=100"), "k", [(0, 10), (20, 10), (41, 10)], 10) == [[0, 1], [2]], "not over one second"
    assert merge(plan("max=100,gap=0"), "k", [(0, 10), (10, 10), (15, 10), (26, 1)], 1) == [[0, 1, 2], [3]]
    assert merge(plan("max=100,gap=100"), "k", [(0, 1), (99, 1), (100, 1)], 1) == [[0, 1], [2]]


def test_lengths() -> None:
    assert merge(plan("max=20"), "k", [(0, 10), (10, 10), (20, 10)], 1) == [[0, 1], [2]]
    assert merge(plan("max=20"), "k", [(0, 30), (5, 1), (30, 1)], 1) == [[0], [1], [2]], "one too long is alone"
    assert merge(plan("max=20,gap=9"), "k", [(0, 1), (10, 30), (40, 1)], 1) == [[0], [1], [2]]
    assert merge(plan("max=20,min=20"), "k", [(0, 10), (10, 10), (20, 10)], 1) == [[0, 1]]
    assert merge(plan("max=20,min=10"), "k", [(0, 1), (5, 10)], 1) == [[1]]
    assert merge(plan("max=20"), "k", [(5, 9), (0, 0), (0, 9), (5, 0), (0, 1)], 1) == [[2, 4, 0]], "by time"
    assert merge(plan("max=20"), "k", [(9, 0), (9, -1)], 1) == merge(plan("max=20"), "k", [], 1) == []


@given(SPANS, RATES, st.sampled_from(["max=0", "max=0,gap=9", "max=0,seed=3"]))
def test_each_segment_is_a_run_of_its_own_without_a_maximum(spans: list[Span], rate: int, name: str) -> None:
    in_order = sorted(range(len(spans)), key=lambda number: spans[number][0])
    assert merge(plan(name), "k", spans, rate) == [[number] for number in in_order if spans[number][1]]
    long = [[number] for number in in_order if spans[number][1] >= 2 * rate]
    assert merge(plan("max=0,min=2"), "k", spans, rate) == long


def test_latest_end_of_overlapping_segments() -> None:
    spans = [(0, 20), (5, 5), (21, 4)]
    assert merge(plan("max=25"), "k", spans, 1) == [[0, 1, 2]], "the pause is that to the latest end"
    assert merge(plan("max=24"), "k", spans, 1) == [[0, 1], [2]]
    assert span_of(spans, [0, 1]) == (0, 20)
    assert span_of(spans, [1, 2]) == (5, 20)


@pytest.mark.parametrize("rate", [1000, 44100, 48000, 2**31 - 1])
def test_lengths_are_exact(rate: int) -> None:
    """0.1 * 3 is not 0.3 in floats, and 1e9 seconds at the highest rate have more digits than a float holds."""
    for seconds in ("0.3", "1.1", "999999999.999999"):
        whole = int(Fraction(seconds) * rate)
        with localcontext(prec=1):
            made = plan(f"max={seconds},gap={seconds}")
            assert str(made) == f"max={seconds},gap={seconds}"
            assert merge(made, "k", [(0, 1), (whole - 1, 1)], rate) == [[0, 1]]
            assert merge(made, "k", [(0, 1), (whole, 1)], rate) == [[0], [1]]
            assert merge(plan(f"max={seconds},min={seconds}"), "k", [(0, whole)], rate) == (
                [[0]] if whole == Fraction(seconds) * rate else []
            )


def drawn(name: str, key: str = "key") -> list[int]:
    """The targets of the first runs of a recording that can be cut at every sample."""
    spans = [(i, 1) for i in range(20_000)]
    return [len(run) for run in merge(plan(name), key, spans, 10)][:-1]


def test_a_seed_draws_lengths() -> None:
    lengths = drawn("max=30,min=5,seed=7")
    assert lengths == drawn("seed=7,epoch=0,min=5.0,max=30")
    assert lengths[:8] == [target_of(plan("max=30,min=5,seed=7"), "key", run, 10) for run in range(8)]
    assert all(50 <= length <= 300 for length in lengths)
    assert min(lengths) < 80 and max(lengths) > 270 and 150 < sum(lengths) / len(lengths) < 200
    others = [drawn("max=30,min=5,seed=7,epoch=1"), drawn("max=30,min=5,seed=8"), drawn("max=30,min=5,seed=7", "other")]
    assert len({tuple(each[:8]) for each in [lengths, *others]}) == 4
    assert set(drawn("max=30,min=5")) == {300}
    assert set(drawn("max=30,min=30,seed=7")) == {300}
    assert set(drawn("max=0.3,min=0.1,seed=1")) == {1, 2, 3}, "both ends are drawn"


def test_what_a_seed_draws_never_changes() -> None:
    assert drawn("max=30,min=5,seed=7", "utt/é")[:5] == [217, 228, 87, 252, 137]


def test_what_is_left_out_changes_no_other_run() -> None:
    """The draws are numbered with the runs that are left out."""
    made = plan("max=4,min=3,seed=5")
    spans = [(0, 1), *[(10 + i, 1) for i in range(60)]]
    runs = merge(made, "k", spans, 1)
    assert [len(run) for run in runs[:5]] == [target_of(made, "k", run, 1) for run in range(1, 6)]


def test_keys_with_half_a_surrogate_pair() -> None:
    assert merge(plan("max=4,seed=5"), "\ud800", [(0, 1)], 1) == [[0]]


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["good", "morning"], "good morning"),
        ([" good ", "morning\n"], "good morning"),
        (["good", "", " ", "morning"], "good morning"),
        (["你好", "世界"], "你好世界"),
        (["你好。", "“世界”"], "你好。 “世界”"),
        (["你好\uff0c", "世界\uff01", "好"], "你好\uff0c世界\uff01好"),
        (["你好 ", " 世界"], "你好世界"),
        (["你好", "world", "世界"], "你好 world 世界"),
        (["カタカナ", "ひらがな", "ー", "か\u3099", "〇"], "カタカナひらがなーか\u3099〇"),
        (["\uff76\uff85", "\uff76\uff85", "漢"], "\uff76\uff85\uff76\uff85漢"),
        (["안녕", "세상"], "안녕 세상"),
        (["안녕", "世界"], "안녕 世界"),
        (["𠀀", "𠀁"], "𠀀𠀁"),
        (["\uff21\uff22", "\uff41"], "\uff21\uff22 \uff41"),
        (["😀", "😀"], "😀 😀"),
        (["é", "à"], "é à"),
        ([], None),
        ([""], ""),
    ],
)
def test_texts_are_joined(texts: list[str], joined: str | None) -> None:
    assert joined_text([*texts, None]) == joined


def test_what_the_json_tells() -> None:
    made, times = (
        plan("gap=0.5,max=30"),
        {"sample_rate": 8000, "offset": 8000, "length": 8000, "start": 1.0, "end": 2.0},
    )
    parts = [{"segment": 1, "offset": 8000, "length": 4000}, {"segment": 2, "offset": 14000, "length": 2000}]
    told = as_json(made, "talks/é", 1, times, parts, "a b")
    assert json.loads(json.dumps(told)) == {
        "key": "talks/é",
        "plan": "max=30,gap=0.5",
        "number": 1,
        "sample_rate": 8000,
        "offset": 8000,
        "length": 8000,
        "start": 1.0,
        "end": 2.0,
        "parts": [
            {"segment": 1, "offset": 8000, "length": 4000},
            {"segment": 2, "offset": 14000, "length": 2000},
        ],
        "text": "a b",
    }


def test_many_segments() -> None:
    spans = [(i * 11, 10) for i in range(100_000)]
    runs = merge(plan("max=30,seed=3"), "k", spans, 10)
    assert [number for run in runs for number in run] == list(range(100_000))


def test_json_says_what_a_rendering_is() -> None:
    """The times stay those of the recording."""
    times = {"sample_rate": 44100, "offset": 7, "length": 44101, "start": 7 / 44100, "end": 44108 / 44100}
    plain = as_json(plan("max=30"), "k", 0, times, [], None)
    assert "rendering" not in plain
    made = as_json(plan("max=30,rate=8000,channels=mono,format=flac"), "k", 0, times, [], None)
    assert made["rendering"] == {"format": "flac", "channels": "mono", "sample_rate": 8000, "length": 8001}
    assert {name: made[name] for name in times} == times
    made = as_json(plan("max=30,channels=1"), "k", 0, times, [], None)
    assert made["rendering"] == {"format": "wav", "channels": "1", "sample_rate": 44100, "length": 44101}
    made = as_json(plan("max=30,format=f32,rate=8000"), "k", 0, {"start": 0.0, "end": None}, [], None)
    assert made["rendering"] == {"format": "f32", "sample_rate": 8000}
