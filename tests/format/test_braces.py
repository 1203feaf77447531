"""Names with braces are the same as in the package that WebDataset uses, and are counted before they are made."""

import random

import pytest
from braceexpand import braceexpand

from touchfs.core.errors import UsageError
from touchfs.format.braces import NAMES_MAX, join_braces, parse_braces

_ENDS = "0", "00", "3", "-2", "-03", "11", "7", "012"
_OTHERS = "{a..d}", "{X..c}", "{d..a}", "{0..9..3}", "{9..0..2}", "{a..k..-3}", "{x}", "{}"


def written(dice: random.Random, depth: int = 0) -> str:
    """A name with some braces, all of which match."""
    kinds = ["text", "numbers", "other", "list"] if depth < 4 else ["text"]
    return "".join(_part(dice, dice.choice(kinds), depth) for _ in range(dice.randint(1, 3)))


def _part(dice: random.Random, kind: str, depth: int) -> str:
    if kind == "text":
        return dice.choice(["a", "b/", "_", "-", "x.", "é"])
    if kind == "numbers":
        return f"{{{dice.choice(_ENDS)}..{dice.choice(_ENDS)}}}"
    if kind == "other":
        return dice.choice(_OTHERS)
    return "{" + ",".join(written(dice, depth + 1) for _ in range(dice.randint(1, 3))) + "}"


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.variant)])
def test_the_names_are_those_of_webdataset(count: int) -> None:
    dice, compared = random.Random(17), 0
    while compared < count:
        try:
            pattern = parse_braces(text := written(dice))
        except UsageError:
            continue
        if pattern is None:
            assert list(braceexpand(text)) == [text]
        elif pattern.count < 500:
            names = list(pattern)
            assert names == list(braceexpand(text)), text
            assert pattern.count == len(names)
            assert all(name.startswith(pattern.prefix) for name in names)
        compared += 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x_OP_8..10_CL_", ["x8", "x9", "x10"]),
        ("_OP_a,b{1..2}_CL_.tar", ["a.tar", "b1.tar", "b2.tar"]),
        ("{a{1..2}", ["{a1", "{a2"]),
        ("{1..2}}", ["1}", "2}"]),
        ("{a,b{1..2}", ["{a,b1", "{a,b2"]),
        ("{x}/_OP_y_CL_/{1..2}", ["{x}/_OP_y_CL_/1", "{x}/_OP_y_CL_/2"]),
        (r"\{a,b}\\", ["\\a\\\\", "\\b\\\\"]),
        ("{1..9\n}{a,b}", ["{1..9\n}a", "{1..9\n}b"]),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    pattern = parse_braces(text)
    assert pattern is not None
    assert (list(pattern), pattern.count) == (names, len(names))


@pytest.mark.parametrize("text", ["a", "a,b", "{a}", "{", "}{", "{1..}", "_OP_1..2}", "{1..2_CL_", "{1...2}", "a_CL_"])
def test_text_that_stands_for_itself(text: str) -> None:
    assert parse_braces(text) is None


def test_a_million_names_are_made_without_a_list_of_them() -> None:
    pattern = parse_braces("train-{000..999}{000..999}.tar")
    assert pattern is not None
    assert pattern.count == NAMES_MAX
    assert next(iter(pattern)) == "train-000000.tar"


@pytest.mark.parametrize(
    "text",
    ["{0..1000000}", "{1..9999999999}", "{a,b}" * 200, "{" * 5000, "{0..999}" * 3, "{a,{0..999999}}"],
)
def test_too_much(text: str) -> None:
    with pytest.raises(UsageError, match="these braces"):
        parse_braces(text)


@pytest.mark.parametrize(
    ("names", "joined"),
    [
        (["t-000.tar", "t-001.tar", "t-002.tar"], "t-{000..002}.tar"),
        (["t-8.tar", "t-9.tar", "t-10.tar", "t-11.tar"], "t-{8..11}.tar"),
        (["t-008.tar", "t-9.tar", "t-10.tar"], "t-{008,9,10}.tar"),
        (["t-2.tar", "t-1.tar"], "t-{2,1}.tar"),
        (["d/train.tar", "d/test.tar"], "d/{train,test}.tar"),
        (["train", "dev/x.tar"], "{train,dev/x.tar}"),
        (["t-{0..2}.tar", "t-7.tar"], "t-{{0..2},7}.tar"),
        (["a.tar", "a.tar"], "a.{tar,tar}"),
        (["s3://b/1.tar", "s3://b/x/2.tar"], "s3://b/{1,x/2}.tar"),
        (["a,b.tar", "c.tar"], None),
        (["{a.tar", "c.tar"], None),
    ],
)
def test_names_are_joined_to_what_stands_for_them(names, joined):
    assert join_braces(names) == joined


def test_whatever_is_joined_stands_for_the_same_names():
    dice = random.Random(5)
    for _ in range(500):
        count, wide = dice.randint(2, 6), dice.choice(["", "02", "03"])
        names = [
            f"{dice.choice(['a/', 'a/b-', ''])}{dice.randint(0, 12):{wide}}{dice.choice(['.tar', ''])}"
            for _ in range(count)
        ]
        joined = join_braces(names)
        assert joined is not None and list(parse_braces(joined) or ()) == names
