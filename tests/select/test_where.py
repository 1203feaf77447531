from __future__ import annotations

import json
import math
import pickle
import random
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from touchfs.core.errors import UsageError
from touchfs.select.expression import DEPTH_MAX, LENGTH_MAX, Where, has_field, parse_where, spell_field

# An expression as a tree: ("or" | "and", trees), ("not", tree), (operator, path, literal).
Tree = tuple[Any, ...]

SYMBOLS = ["==", "!=", "<", "<=", ">", ">="]
PARTS = st.sampled_from(["a", "b", "in", "odd name", "x.y", "ü-1", "", '"', "0"])
PATHS = st.lists(PARTS, min_size=1, max_size=3).map(tuple)
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, -2.5, 1e300, 2**53, 2**53 + 1, 10**300, 5e-324])
TEXTS = st.sampled_from(["", "u", "uh", "buh!", "1", '\\"\n', "ü😀", "\ud800"])
LITERALS = NUMBERS | TEXTS | st.sampled_from([True, False, None])
TESTS = (
    st.tuples(st.sampled_from(["==", "!=", "contains"]), PATHS, LITERALS)
    | st.tuples(st.sampled_from(SYMBOLS[2:]), PATHS, NUMBERS | TEXTS)
    | st.tuples(st.just("in"), PATHS, st.lists(LITERALS, max_size=3))
    | st.tuples(st.just("exists"), PATHS, st.none())
)
TREES: st.SearchStrategy[Tree] = st.recursive(
    TESTS,
    lambda trees: (
        st.tuples(st.sampled_from(["or", "and"]), st.lists(trees, min_size=2, max_size=3))
        | st.tuples(st.just("not"), trees)
    ),
    max_leaves=8,
)
SCALARS = LITERALS | st.sampled_from([1.0, math.nan, math.inf, 2.0**53])
VALUES = st.recursive(SCALARS, lambda values: st.lists(values, max_size=3) | st.dictionaries(PARTS, values, max_size=4))
FACTS = st.dictionaries(PARTS, VALUES, max_size=5)


def spelled(tree: Tree) -> str:
    """The one spelling."""
    if tree[0] in ("or", "and"):
        inside = {"or": (), "and": ("or",)}[tree[0]]
        return f" {tree[0]} ".join(f"({spelled(t)})" if t[0] in inside else spelled(t) for t in tree[1])
    if tree[0] == "not":
        return f"not ({spelled(tree[1])})" if tree[1][0] in ("or", "and") else f"not {spelled(tree[1])}"
    operator, path, literal = tree
    words = ["and", "or", "not", "in", "contains", "exists", "true", "false", "null"]
    names = [p if re.match(r"[a-zü][a-z1ü-]*$", p) and p not in words else literally(p) for p in path]
    told = f"{'.'.join(names)} {operator}"
    if operator == "in":
        return f"{told} [{', '.join(map(literally, literal))}]"
    return told if operator == "exists" else f"{told} {literally(literal)}"


def literally(literal: Any) -> str:
    if isinstance(literal, float) and literal.is_integer() and abs(literal) < 2**53:
        literal = int(literal)
    return json.dumps(literal, ensure_ascii=False).replace("\ud800", "\\ud800")


def scrawled(tree: Tree, chance: random.Random) -> str:
    """The same as somebody might write it."""

    def gap(least: str = "") -> str:
        return chance.choice([least, " ", "\n", " \t\r "])

    def literal(value: Any) -> str:
        spellings = [literally(value), json.dumps(value)]
        if type(value) is int and abs(value) < 10:
            spellings += [f"{value}.0", f"{value}.00E+00"]
        if isinstance(value, str):
            inner = json.dumps(value)[1:-1]
            spellings += ["'" + text.replace("'", "\\'") + "'" for text in (inner, inner.replace('\\"', '"'))]
        return chance.choice(spellings)

    def scrawl(tree: Tree) -> str:
        if tree[0] in ("or", "and"):
            text = f"{gap(' ')}{tree[0]}{gap(' ')}".join(f"({scrawl(t)})" for t in tree[1])
        elif tree[0] == "not":
            text = f"not{gap()}({scrawl(tree[1])})"
        else:
            operator, path, value = tree
            names = [json.dumps(p) if chance.random() < 0.5 else spell_field((p,)) for p in path]
            text = f"{gap()}.{gap()}".join(names) + gap(" ") + operator
            if operator == "in":
                text += gap() + "[" + f"{gap()},{gap()}".join(map(literal, value)) + gap() + "]"
            elif operator != "exists":
                text += gap(" ") + literal(value)
        return f"({gap()}{text}{gap()})" if chance.random() < 0.3 else text

    return gap() + scrawl(tree) + gap()


def flat(tree: Tree) -> Tree:
    """An "or" directly in an "or" is one, and so for "and"."""
    if tree[0] == "not":
        return "not", flat(tree[1])
    if tree[0] not in ("or", "and"):
        return tree
    trees = [flat(t) for t in tree[1]]
    return tree[0], [inner for t in trees for inner in (t[1] if t[0] == tree[0] else [t])]


def paths(tree: Tree) -> set[tuple[str, ...]]:
    if tree[0] in ("or", "and"):
        return {path for t in tree[1] for path in paths(t)}
    return paths(tree[1]) if tree[0] == "not" else {tree[1]}


def kind(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__


def holds(tree: Tree, facts: Any) -> bool:
    if tree[0] == "or":
        return any(holds(t, facts) for t in tree[1])
    if tree[0] == "and":
        return all(holds(t, facts) for t in tree[1])
    if tree[0] == "not":
        return not holds(tree[1], facts)
    operator, path, literal = tree
    value = facts
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return False
        value = value[part]
    match operator:
        case "exists":
            return True
        case "in":
            return any(same(value, each) for each in literal)
        case "contains" if isinstance(value, list):
            return any(same(each, literal) for each in value)
        case "contains":
            return kind(value) == kind(literal) == "str" and literal in value
        case "==":
            return same(value, literal)
        case "!=":
            return not same(value, literal)
    if kind(value) != kind(literal):
        return False
    less, equal = value < literal, value == literal
    greater = value > literal
    return bool({"<": less, "<=": less or equal, ">": greater, ">=": greater or equal}[operator])


def same(value: Any, literal: Any) -> bool:
    return kind(value) == kind(literal) and bool(value == literal)


@given(TREES, st.integers(0, 2**32))
def test_every_writing_has_one_spelling(tree: Tree, seed: int) -> None:
    where = parse_where(scrawled(tree, random.Random(seed)))
    assert str(where) == spelled(flat(tree))
    assert where.fields == paths(tree)
    again = parse_where(str(where))
    assert again == where and hash(again) == hash(where)
    assert (str(again), again.fields) == (str(where), where.fields)


@settings(max_examples=2 * settings().max_examples)
@given(TREES, st.lists(FACTS, min_size=1, max_size=5), st.integers(0, 2**32))
def test_it_means_what_the_plain_model_means(tree: Tree, samples: list[dict[str, Any]], seed: int) -> None:
    where = parse_where(scrawled(tree, random.Random(seed)))
    for facts in samples:
        expected = holds(tree, facts)
        assert where.matches(facts) is expected
        assert parse_where(str(where)).matches(facts) is expected
        for path in where.fields:
            assert has_field(path)(facts) is holds(("exists", path, None), facts)


SAMPLE = {
    "key": "BAC1",
    "ordinal": 7,
    "duration": 2.75,
    "text": "well uh no",
    "tags": ["noisy", 1, None],
    "info": {"lang": "de", "nothing": None, "good": True},
    "odd name": {"x": 1},
    "nan": math.nan,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('duration > 2.5 and not (lang == "en" or text contains "uh")', False),
        ('duration > 2.5 and not (info.lang == "en" or text contains "UH")', True),
        ("ordinal == 7.0 and ordinal >= 7 and ordinal in [6, 7e0]", True),
        ('ordinal == "7" or ordinal < "8" or ordinal > ""', False),
        ('ordinal != "7" and key != 7', True),
        ("info.good == 1 or info.good > 0", False),
        ("info.good == true and info.good != 1", True),
        ("info.nothing exists and info.nothing == null and info.nothing in [0, null]", True),
        ("absent exists or absent == 1 or absent != 1 or absent < 1 or absent in [null] or absent == null", False),
        ("not absent == 1", True),
        ('tags contains "noisy" and tags contains 1.0 and tags contains null', True),
        ('tags contains "nois" or tags contains true or tags == 1 or ordinal contains 7', False),
        ('"odd name".x == 1 and "key" == "BAC1"', True),
        ('"info.lang" exists or key.lang exists or info.lang.x exists', False),
        ("nan == 1 or nan < 1 or nan >= 1 or nan in [1]", False),
        ("nan != 1 and nan exists", True),
        ("key in []", False),
        ("absent exists and absent exists or key exists", True),
        ("key exists or absent exists and absent exists", True),
        ("not absent exists and key exists", True),
        ("not (absent exists and key exists)", True),
        ("not not key exists", True),
    ],
)
def test_what_it_means(text: str, expected: bool) -> None:
    assert parse_where(text).matches(SAMPLE) is expected


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", 1, "name of a field"),
        ("  ", 3, "not the end"),
        ('lang = "en"', 6, "operator"),
        ("lang", 5, "operator"),
        ("lang ==", 8, "literal"),
        ('"en" == lang', 9, "not 'lang'"),
        ("lang == 'en", 9, "Unterminated"),
        ("x == NaN", 6, "literal"),
        ("x == -Infinity", 6, "literal"),
        ("x == 1e999", 6, "1.8e308"),
        ("x == 1" + "0" * 5000, 6, "1.8e308"),
        ("x == .5", 6, "literal"),
        ("x == 01", 7, '"and", "or" or the end'),
        ("x < true", 5, "number or a string"),
        ("x >= null", 6, "number or a string"),
        ("x == [1]", 6, "literal"),
        ("x in 1", 6, r'"\["'),
        ("x in [1", 8, '"," or'),
        ("x in [1,]", 9, "literal"),
        ("x in [[1]]", 7, "literal"),
        ("(x == 1", 8, r'"\)"'),
        ("x == 1)", 7, "the end"),
        ("x == 1 y", 8, "the end"),
        ("in == 1", 1, "odd one in quotes"),
        ("a.5 == 1", 3, "odd one"),
        ("a. == 1", 4, "name of a field"),
        ('x == "\\q"', 7, "JSON string"),
        ('x == "é\x01"', 8, "JSON string"),
        ('x == "é', 6, "JSON string"),
        ('é == "ü" ü', 10, "the end"),
        ("x == \udcff", 6, "UTF-8"),
        ("__import__('os')", 11, "operator"),
        ("x == 1;", 7, "not ';'"),
        ("NOT x == 1", 5, "operator"),
    ],
)
def test_refusals(text: str, column: int, words: str) -> None:
    with pytest.raises(UsageError, match=rf"column {column}: .*{words}") as caught:
        parse_where(text)
    assert caught.value.offset == len(text[: column - 1].encode())
    assert "\n" not in str(caught.value)


WORDS = ["and", "or", "not", "in", "contains", "exists", "true", "null", "NaN", "a", "b.c", "1", "-1", "1e9", "1e999"]
SIGNS = ["(", ")", "[", "]", ",", ".", "==", "!=", "<", ">=", "=", "!", "-", "'", '"', "\\", '"x"', '"\\u00']
BITS = st.sampled_from([*WORDS, *SIGNS, "\n", "\0", "ü", "\ud800", "\u2028", "١"])


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(BITS, max_size=12).map(" ".join) | st.lists(BITS, max_size=12).map("".join) | st.text())
@example("")
def test_any_text(text: str) -> None:
    check_hostile(text)


@given(TREES, st.data())
def test_any_damaged_expression(tree: Tree, data: st.DataObject) -> None:
    text = spelled(tree)
    place = data.draw(st.integers(0, len(text)))
    check_hostile(text[:place] + data.draw(BITS | st.just("")) + text[place + data.draw(st.integers(0, 3)) :])


def check_hostile(text: str) -> Where | None:
    try:
        where = parse_where(text)
    except UsageError as error:
        assert error.offset is not None
        assert 0 <= error.offset <= len(text.encode(errors="surrogatepass"))
        return None
    assert parse_where(str(where)) == where
    str(where).encode()
    assert where.matches({}) in (True, False)
    return where


@pytest.mark.parametrize(
    "text",
    [
        "(" * LENGTH_MAX,
        "not " * (LENGTH_MAX // 4),
        "not(" * (LENGTH_MAX // 4),
        "a exists or " * (LENGTH_MAX // 12),
        '"' + "\\" * (LENGTH_MAX - 1),
        'a == "' + "\\u" * (LENGTH_MAX // 2 - 3),
        "a" * LENGTH_MAX,
        "-" * LENGTH_MAX,
        "a in [" + "[" * (LENGTH_MAX - 6),
        "x == 1" + " " * LENGTH_MAX,
        "a in [" + "1," * 30000 + "1]",
    ],
)
def test_what_would_take_too_much(text: str) -> None:
    assert check_hostile(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "a == 1" + " or a == 1" * 6000,
        "a in [" + "1, " * 20000 + "1]",
        ".".join("a" * 30000) + " exists",
        "a == 0." + "1" * 60000,
        "(" * DEPTH_MAX + "a == 1" + ")" * DEPTH_MAX,
        "not " * DEPTH_MAX + "a == 1",
        'a == "' + "ü" * 60000 + '"',
    ],
)
def test_what_is_long_but_fits(text: str) -> None:
    assert check_hostile(text) is not None


def test_depth() -> None:
    with pytest.raises(UsageError, match=f"at most {DEPTH_MAX}"):
        parse_where("(" * (DEPTH_MAX + 1) + "a == 1" + ")" * (DEPTH_MAX + 1))


def test_values_of_any_depth() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    facts = {"a": deep, "b": {"c": deep}}
    assert not parse_where('a == "x" or a contains "x" or a < 1 or b.c in ["x", null]').matches(facts)
    assert parse_where('a != "x" and b.c exists').matches(facts)
    while isinstance(deep, list):
        deep = deep.pop()  # else its end would be as deep a recursion


def test_it_goes_to_other_processes() -> None:
    where = parse_where('( info.lang=="de")')
    copy = pickle.loads(pickle.dumps(where))
    assert copy == where and copy.fields == where.fields == {("info", "lang")}
    assert copy.matches(SAMPLE)
    assert where != parse_where('info.lang == "en"')
    assert parse_where("x == 1") != parse_where("x == true")
