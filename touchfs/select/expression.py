"""Filter expressions, which select the samples of an iterator.

    duration > 2.5 and not (info.lang == "en" or text contains "uh")

    expression   conjunction { "or" conjunction }
    conjunction  negation { "and" negation }
    negation     "not" negation | "(" expression ")" | test
    test         field "exists" | field "contains" literal | field "in" "[" [ literal { "," literal } ] "]"
                 | field "in" ids | field ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) literal
    field        part { "." part }, where a part is a name or any JSON string: "odd name".x
    literal      a JSON string or number, true, false, null; strings are also in single quotes
    ids          "@" and the name of a list of ids (touchfs.select.ids.names), an odd one as a string

Names consist of letters, digits, `_` and `-`, and begin with a letter or `_`; a keyword must be quoted to be a name.

Values compare as in JSON: 1 equals 1.0, but neither true nor "1". Values of different types are unequal, and neither is
less than the other. `contains` finds a text in a text, or a literal among the elements of a list. A field that a sample
lacks fails every test, also `!=`; so `not x == 1` keeps samples without `x`, and `x != 1` does not. A null field
exists. The label of a class compares as its name with texts, and as its number with numbers.

The parser compiles while it reads, into closures and into a canonical text. Expressions that differ only in spacing,
redundant parentheses and the spelling of literals have the same canonical text. There, a list of ids is called by the
hash of its content.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from touchfs.core.errors import UsageError
from touchfs.select.ids.names import OpenIds, unopened
from touchfs.select.predicates import (
    ORDERS,
    TESTS,
    Kinds,
    Literal,
    OfKeys,
    Path,
    Predicate,
    has_field,
    inverted,
    inverted_of_keys,
    joined_of_keys,
    kinds_of,
    one_of,
    ordered,
    tested,
    tested_of_keys,
    until,
)

__all__ = ["DEPTH_MAX", "LENGTH_MAX", "Where", "has_field", "parse_where", "spell_field"]


# In characters, for the input and for its canonical text: enough for a list of thousands of keys.
LENGTH_MAX = 1 << 16
# A level uses at most five of the interpreter's thousand frames, which the caller needs, too.
DEPTH_MAX = 50

_NAME = r"[^\W\d][\w-]*"
_PLAIN_LIST = r"[^\s\"'()\[\]]+"
_TOKEN = re.compile(
    rf"""[ \t\r\n]*(?:
        (?P<name>{_NAME})
        | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
        | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*"?|'[^'\\]*(?:\\.[^'\\]*)*'?)
        | (?P<ids>@(?:{_PLAIN_LIST})?)
        | (?P<symbol>[=!<>]=|[<>()\[\].,])
        | (?P<end>\Z)
        | (?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
# For converting a string in single quotes into one in double quotes.
_QUOTES = re.compile(r"""\\.|["']""", re.DOTALL)
_REQUOTED = {"\\'": "'", '"': '\\"', "'": '"'}
_CONSTANTS: Mapping[str, Literal] = {"true": True, "false": False, "null": None}
_WORDS = frozenset({"and", "or", "not", "in", "contains", "exists", *_CONSTANTS})

# What other languages write, and what it is here.
_MEANT = {"&": "and", "|": "or", "=": "==", "!": "not"}

# Smaller floats without a fraction are written as integers; larger ones would take up to 309 digits.
_INTEGRAL_MAX = 2**53

# Operator precedence, ascending: a clause of lower precedence needs parentheses inside one of higher precedence.
_OR, _AND, _NOT = range(3)


@dataclass(frozen=True, slots=True)
class Where:
    """A filter expression. `str()` is its canonical text, which parses to an equal expression if no list is in it.

    `source` is the text that was parsed, and `open_ids` has opened its lists of ids. `matches` takes the facts of a
    sample: a mapping from names to values of JSON's types, with nested dicts. `of_keys` takes the keys of many samples,
    and says what follows from looking them up in lists; it is None without such a test. `rest` is `matches` for samples
    about which that does not decide. `kinds` are the kinds of values for which each test of a field can be true.
    """

    text: str
    source: str = field(compare=False, repr=False)
    open_ids: OpenIds = field(compare=False, repr=False)
    fields: frozenset[Path] = field(compare=False, repr=False)
    kinds: tuple[tuple[Path, Kinds], ...] = field(compare=False, repr=False)
    matches: Predicate = field(compare=False, repr=False)
    rest: Predicate = field(compare=False, repr=False)
    of_keys: OfKeys | None = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Callable[[str, OpenIds], Where], tuple[str, OpenIds]]:
        return parse_where, (self.source, self.open_ids)


def parse_where(text: str, open_ids: OpenIds = unopened) -> Where:
    """Parse an expression, and open its lists of ids. Raises UsageError with the column and the expected token, of
    which `offset` counts UTF-8 bytes, and what `open_ids` raises.
    """
    parser = _Parser(_readable(text), open_ids)
    clause = parser.expression(DEPTH_MAX)
    if parser.kind != "end":
        raise parser.expected('"and", "or" or the end')
    text_of_clause, fields, kinds = _readable(clause.text), frozenset(parser.fields), tuple(parser.kinds)
    rest = clause.rest or clause.matches
    return Where(text_of_clause, text, open_ids, fields, kinds, clause.matches, rest, clause.of_keys)


def spell_field(path: Path) -> str:
    """Return a field as an expression has it, with odd names in quotes."""
    return ".".join(part if re.fullmatch(_NAME, part) and part not in _WORDS else _spell(part) for part in path)


def _readable(text: str) -> str:
    if len(text) > LENGTH_MAX:
        problem = f"expected an expression that takes, evenly spaced, {LENGTH_MAX} characters at most, not {len(text)}"
        raise _error(text, 0, problem)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _error(text, error.start, "expected UTF-8") from error
    return text


@dataclass(frozen=True, slots=True)
class _Clause:
    text: str
    binding: int
    matches: Predicate
    # The same for samples about which keys do not decide; None if they always do.
    rest: Predicate | None
    of_keys: OfKeys | None = None

    def inside(self, binding: int) -> str:
        return f"({self.text})" if self.binding < binding else self.text


class _Parser:
    """A recursive descent parser with one token of lookahead: its `kind`, its `word`, and its `start` in the text."""

    __slots__ = ("_open_ids", "_tokens", "fields", "kind", "kinds", "start", "text", "word")

    def __init__(self, text: str, open_ids: OpenIds) -> None:
        self.text = text
        self._open_ids = open_ids
        self.fields: set[Path] = set()
        self.kinds: list[tuple[Path, Kinds]] = []
        self._tokens = _TOKEN.finditer(text)
        self.advance()

    def advance(self) -> None:
        token = next(self._tokens)
        self.kind = str(token.lastgroup)
        self.word = token[self.kind]
        self.start = token.start(self.kind)

    def takes(self, word: str) -> bool:
        if self.word != word:
            return False
        self.advance()
        return True

    def expected(self, what: str) -> UsageError:
        found = "the end" if self.kind == "end" else f"{self.word[:40]!r}"
        meant = f": write {_MEANT[self.word]}" if self.word in _MEANT else ""
        return _error(self.text, self.start, f"expected {what}, not {found}{meant}")

    def expression(self, levels: int) -> _Clause:
        return self.joined("or", _OR, self.conjunction, levels)

    def conjunction(self, levels: int) -> _Clause:
        return self.joined("and", _AND, self.negation, levels)

    def joined(self, word: str, binding: int, inner: Callable[[int], _Clause], levels: int) -> _Clause:
        clauses = [inner(levels)]
        while self.takes(word):
            clauses.append(inner(levels))
        if len(clauses) == 1:
            return clauses[0]
        text = f" {word} ".join(clause.inside(binding) for clause in clauses)
        end = word == "or"
        matches = until(end, [clause.matches for clause in clauses])
        unsure = [clause for clause in clauses if clause.rest is not None]
        # Where keys do not decide about the whole, they make no difference in what they decide about. Of several other
        # clauses they may still decide about some.
        rest = unsure[0].rest if len(unsure) == 1 else until(end, [clause.matches for clause in unsure])
        of_keys = joined_of_keys(end, [clause.of_keys for clause in clauses])
        return _Clause(text, binding, matches, rest if unsure else None, of_keys)

    def negation(self, levels: int) -> _Clause:
        if self.word not in ("not", "("):
            return self.test()
        if not levels:
            raise self.expected(f'at most {DEPTH_MAX} "not" and "(" inside each other')
        if self.takes("not"):
            clause = self.negation(levels - 1)
            of_keys, rest = inverted_of_keys(clause.of_keys), clause.rest
            return _Clause(
                "not " + clause.inside(_NOT), _NOT, inverted(clause.matches), rest and inverted(rest), of_keys
            )
        self.advance()
        clause = self.expression(levels - 1)
        if not self.takes(")"):
            raise self.expected('"and", "or" or ")"')
        return clause

    def test(self) -> _Clause:
        path, word = self.path(), self.word
        of_keys: OfKeys | None = None
        self.fields.add(path)
        text = f"{spell_field(path)} {word}"
        if self.takes("exists"):
            return _Clause(text, _NOT, has_field(path), has_field(path))
        if self.takes("in") and self.kind == "ids":
            ids = self._open_ids(self.list_name(), path[-1])
            self.kinds += [(path, ids.kinds)] if ids.kinds else []
            text += f" @{ids.spelled if re.fullmatch(_PLAIN_LIST, ids.spelled) else _spell(ids.spelled)}"
            test: Callable[[Any], bool] = ids.has
            of_keys = tested_of_keys(ids.have) if path == ("key",) else None
        elif word == "in":
            literals = self.literals()
            self.kinds += [(path, reduce(or_, map(kinds_of, literals)))] if literals else []
            text += f" [{', '.join(map(_spell, literals))}]"
            test = one_of(*literals)
        elif word in TESTS:
            self.advance()
            literal = self.literal()
            if word == "contains":
                self.kinds.append((path, kinds_of(literal) & Kinds.TEXT | Kinds.LIST))
            elif word == "==":
                self.kinds.append((path, kinds_of(literal)))
            text += f" {_spell(literal)}"
            test = TESTS[word](literal)
        elif word in ORDERS:
            self.advance()
            if self.kind not in ("number", "string"):
                raise self.expected("a number or a string in quotes")
            literal = self.literal()
            self.kinds.append((path, kinds_of(literal)))
            text += f" {_spell(literal)}"
            test = ordered(ORDERS[word], literal)
        else:
            raise self.expected("an operator (== != < <= > >= in contains exists)")
        matches = tested(path, test)
        return _Clause(text, _NOT, matches, matches if of_keys is None else None, of_keys)

    def path(self) -> Path:
        parts = [self.part()]
        while self.takes("."):
            parts.append(self.part())
        return tuple(parts)

    def part(self) -> str:
        if self.kind == "string":
            return self.string()
        if self.kind != "name" or self.word in _WORDS:
            raise self.expected("the name of a field (an odd one in quotes)")
        name = self.word
        self.advance()
        return name

    def list_name(self) -> str:
        name = self.word[1:]
        self.advance()
        if not name and self.kind != "string":
            raise self.expected("the name of a list of ids (an odd one in quotes)")
        return name or self.string()

    def literals(self) -> list[Literal]:
        literals: list[Literal] = []
        if not self.takes("["):
            raise self.expected('"[", or "@" and the name of a list of ids')
        if self.takes("]"):
            return literals
        while True:
            literals.append(self.literal())
            if self.takes("]"):
                return literals
            if not self.takes(","):
                raise self.expected('"," or "]"')

    def literal(self) -> Literal:
        if self.kind == "string":
            return self.string()
        literal: Literal
        if self.kind == "number":
            literal = self.number()
        elif self.word in _CONSTANTS:
            literal = _CONSTANTS[self.word]
        else:
            raise self.expected("a literal (a string in quotes, a number, true, false, null)")
        self.advance()
        return literal

    def string(self) -> str:
        word = self.word
        if word[0] == "'":
            word = '"' + _QUOTES.sub(lambda found: _REQUOTED.get(found[0], found[0]), word[1:])
        try:
            value: str = json.loads(word)
        except json.JSONDecodeError as error:
            raise _error(self.text, self.start + error.pos, f"expected a JSON string: {error.msg}") from error
        self.advance()
        return value

    def number(self) -> int | float:
        value = float(self.word)
        if not math.isfinite(value):
            raise self.expected("a number of at most 1.8e308")
        if not set(self.word) & set(".eE"):
            return int(self.word)
        return int(value) if value.is_integer() and abs(value) < _INTEGRAL_MAX else value


def _error(text: str, start: int, problem: str) -> UsageError:
    return UsageError(f"where, column {start + 1}: {problem}", offset=len(text[:start].encode(errors="surrogatepass")))


def _spell(literal: Literal) -> str:
    """Return a literal as JSON. Half of a surrogate pair, which UTF-8 cannot encode, stays an escape."""
    return json.dumps(literal, ensure_ascii=False).encode(errors="backslashreplace").decode()
