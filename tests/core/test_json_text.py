"""Values and errors of JSON do not depend on which parser is installed: each text is parsed by both."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tars import write_tar
from touchnet import write_shard

from touchfs.core.json_text import DEPTH_MAX, _fast_parser, check_nesting, parse_json

scalars = st.none() | st.booleans() | st.floats() | st.text() | st.integers(-(2**70), 2**70)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)
numbers = st.from_regex(r"\A-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?\Z")
pieces = st.lists(
    st.sampled_from(
        [*'[]{}",:\\ue-+.0123456789', "null", "NaN", '"a":', "\\ud800", "\\u0000", "\x00", "\x0c", " ", "\n"]
    )
    | st.characters()
).map("".join)


def outcome(parse, data):
    """The value, in which 1, 1.0, -0.0, NaN and the order of keys differ; or the class and text of an error."""
    try:
        return spelled(parse(data))
    except (ValueError, RecursionError) as error:
        return type(error), str(error)


def spelled(value):
    if isinstance(value, dict):
        return "{", [(key, spelled(each)) for key, each in value.items()]
    if isinstance(value, list):
        return "[", [spelled(each) for each in value]
    return type(value), value.hex() if isinstance(value, float) else value


def by_standard_library(data):
    check_nesting(data)
    return json.loads(data)


def check(data):
    assert _fast_parser() is not None
    assert outcome(parse_json, data) == outcome(by_standard_library, data)


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"-0",
            b"-0.0",
            b"1e999",
            b"-1e999",
            b"1e-400",
            b"5e-324",
            b"2.4703282292062327e-324",
            b"1E2",
            b"1e05",
            b"1e",
        ),
        *(
            b"-",
            b"+1",
            b"01",
            b"1.",
            b".5",
            b"1.7976931348623159e308",
            b"0.1234567890123456789",
            b"9" * 4301,
            b"9" * 18,
        ),
        *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616"),
        *(b"1234567890123456789.5e-3", b"100000000000000000000e3", b"2.2250738585072011e-308", b"0.1e1"),
        *(b"NaN", b"[Infinity]", b"-Infinity", b"tru", b"nul", b"'a'", b"/**/1", b"1 2", b"[1]x", b"[]]", b"", b" "),
        *(b'{"a":1,"b":2,"a":3}', b'{"\\u0061":1,"a":2}', b'{"a":1,}', b"[1,]", b"{1:2}", b'{"a"}', b'{"":0}'),
        *(
            b'"\\ud800"',
            b'"\\udc00\\ud800"',
            b'"\\ud83d\\ude00"',
            b'"\\uD83D"',
            b'"\xed\xa0\x80"',
            b'"\\u12G4"',
            b'"\\x"',
        ),
        *(
            b'"\xff"',
            b'"\xc0\x80"',
            b'"\xf4\x90\x80\x80"',
            b"\xef\xbb\xbf{}",
            b'"\x00"',
            b'"\t"',
            b'"\x7f"',
            b'"\\u0000"',
        ),
        *(
            b"\x0c1",
            b"\xc2\xa01",
            b"1\x00",
            b"[1]\x00",
            b"\x00",
            b"\r\n\t 1 ",
            '"é"'.encode("utf-16"),
            b'"\x00\xe9\x00"\x00',
        ),
        *('["🎉"]'.encode(coding) for coding in ("utf-16-be", "utf-32", "utf-32-le", "utf-8-sig")),
        *(b"[" * depth + b"]" * depth for depth in (DEPTH_MAX, DEPTH_MAX + 1, 5000)),
        *(b'{"a":' * depth + b"1" + b"}" * depth for depth in (DEPTH_MAX, DEPTH_MAX + 1)),
        *(b"[" * 100_000, b"[" * DEPTH_MAX, b"]" * 1000, b"[" + b"[]," * 1000 + b"[]]"),
        *(b'["' + b"[" * 9999 + b'"]', b'["\\"' + b"[" * 9999 + b'"]', b'["\\\\",' + b"[" * 9999),
        (b"[" * 850).decode().encode("utf-16"),
    ],
    ids=repr,
)
def test_each_class_of_text_has_one_outcome(text):
    check(text)


@given(documents)
def test_generated_documents(value):
    for ensure_ascii in (True, False):
        check(json.dumps(value, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass"))


@given(numbers)
@example("0." + "0" * 300 + "1")
def test_numbers_are_rounded_alike(text):
    check(text.encode())


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 25))
def test_floats_of_any_number_of_digits(value, digits):
    check(f"{value:.{digits}e}".encode())
    if math.fabs(value) < 1e30:
        check(f"{value:.{digits}f}".encode())


@given(pieces)
def test_texts_that_are_hardly_json(text):
    check(text.encode("utf-8", "surrogatepass"))


@given(documents, st.data())
def test_damaged_documents(value, data):
    text = bytearray(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
    check(bytes(text))


@given(st.recursive(st.text(alphabet='[]{}"\\a', max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_depth_is_counted_outside_of_strings(value):
    def depth(value):
        return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0

    inner = json.dumps(value)
    for levels, is_refused in ((DEPTH_MAX - depth(value), False), (DEPTH_MAX + 1 - depth(value), True)):
        text = ("[" * levels + inner + "]" * levels).encode()
        assert isinstance(outcome(parse_json, text)[0], type) == is_refused
        check(text)


LINES = [
    b'{"id": 12345678901234567890123, "text": "long number"}',
    b'{"id": 1e999}',
    b'{"id": "\\ud800", "text": "half a pair"}',
    b'{"key": "a", "key": "b", "txt": "twice", "info": {"segments": [{"start": NaN, "end": 1.0}]}}',
    b'{"key": "s", "info": {"segments": [{"start": 0.1234567890123456789, "end": 1e2, "txt": "\xc3\xa9"}]}}',
    b'{"id": "\xff"}',
    b'{"id": ' + b"[" * 850 + b"]" * 850 + b"}",
    b'{"id": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"id": "nested", "a": ' + b"[" * 800 + b"]" * 800 + b"}",
    b"no JSON",
    b'{"id": "cut off',
    b'{"supervisions": [{"id": "x", "start": 18446744073709551616, "duration": -0}], "id": -0}',
]

# Makes a catalog of each shard, without orjson if the last argument says so.
INDEX = """
import sys
if sys.argv[-1] == "hidden":
    sys.modules["orjson"] = None
from touchfs.indexing.catalogs import make_catalog
from touchfs.core.json_text import _fast_parser
for shard, catalog in zip(sys.argv[1:-1:2], sys.argv[2:-1:2]):
    make_catalog(shard, catalog)
assert (_fast_parser() is None) == (sys.argv[-1] == "hidden")
"""


def test_catalogs_have_the_same_bytes_without_the_fast_parser(tmp_path: Path):
    (tmp_path / "lines.jsonl").write_bytes(b"\n".join(LINES))
    write_tar(tmp_path / "samples.tar", {f"{i}.json": line for i, line in enumerate(LINES)} | {"1.wav": b""})
    write_shard(tmp_path / "000000000", metainfo=(1, LINES))
    shards = ["lines.jsonl", "samples.tar", "000000000"]
    for parser in ("hidden", "found"):
        pairs = [name for shard in shards for name in (tmp_path / shard, tmp_path / f"{shard}.{parser}")]
        subprocess.run([sys.executable, "-c", INDEX, *pairs, parser], check=True, cwd=os.getcwd())
    for shard in shards:
        made = (tmp_path / f"{shard}.found").read_bytes()
        assert made == (tmp_path / f"{shard}.hidden").read_bytes()
        assert len(made) > 1000
