import json
import struct
import subprocess
import sys
from concurrent.futures import Executor
from pathlib import Path

import pytest
import tokenizers
from make_data import shards, tree

from touchfs.bulk.pack.touchnet import PackReport, pack_touch
from touchfs.core.errors import FormatError, NotFoundError

WORDS = {word: i for i, word in enumerate(["[UNK]", "[CLS]", "hello", "world", "你好", "wow"])}


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """One that would add a special token, and cut and pad, if it were let."""
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 1)])
    made.enable_truncation(3)
    made.enable_padding(length=10)
    made.save(str(tmp_path / "tokenizer.json"))
    assert len(made.encode("a b c d e").ids) == 10
    return tmp_path / "tokenizer.json"


def write(tmp_path: Path, rows: list[dict[str, object]]) -> list[str]:
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (tmp_path / "l.jsonl").write_text("".join(lines))
    return lines


def packed(lines: list[str], output: Path, per_shard: int, width: int, **how: object) -> dict[str, bytes]:
    """As make_data writes them: uint16 (code 8) or int32 (code 4), and nothing for an empty text."""

    def make(row: dict[str, object]) -> dict[str, bytes] | None:
        ids = row.get("input_ids")
        if "text" in row:
            ids = [WORDS.get(word, 0) for word in str(row["text"]).split()]
            if row["text"] == "":
                return None
        assert isinstance(ids, list)
        if not ids and "text" not in row:
            return None
        return {"texttoken": struct.pack(f"<{len(ids)}{'H' if width == 2 else 'i'}", *ids)}

    codes = {"texttoken": (8 if width == 2 else 4, width)}
    return shards(lines, str(output), per_shard, "texttoken", make, codes)


def test_a_tokenizer(tmp_path: Path, tokenizer: Path, processes: Executor) -> None:
    texts = ["hello world", "你好 hello wow nobody wow hello", "", "   ", "wow"]
    lines = write(tmp_path, [{"text": text, "input_ids": "not looked at"} for text in texts])
    for executor in (None, processes):
        output = tmp_path / f"out{executor is None}"
        report = pack_touch(
            tmp_path / "l.jsonl",
            output,
            datatypes="texttoken",
            samples_per_shard=2,
            tokenizer=tokenizer,
            executor=executor,
        )
        assert report == PackReport(3, 4, 0)
        assert tree(output) == packed(lines, output, 2, 2)


def test_a_tokenizer_with_gaps(tmp_path: Path) -> None:
    """The count of its tokens decides the type, as in make_data; an id that this cannot hold is an error."""
    vocabulary = {"[UNK]": 0, "high": 65535, "higher": 65536}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")).save(str(tmp_path / "t.json"))
    how = {"datatypes": "texttoken", "tokenizer": tmp_path / "t.json"}
    write(tmp_path, [{"text": "high"}])
    pack_touch(tmp_path / "l.jsonl", tmp_path / "out", **how)
    assert (tmp_path / "out/000000000/texttoken.bin").read_bytes() == b"\xff\xff"
    write(tmp_path, [{"text": "higher"}])
    with pytest.raises(FormatError, match="token id 65536 is not in a vocabulary of 65536"):
        pack_touch(tmp_path / "l.jsonl", tmp_path / "other", **how)
    pack_touch(tmp_path / "l.jsonl", tmp_path / "wide", vocab_size=65537, **how)
    assert (tmp_path / "wide/000000000/texttoken.bin").read_bytes() == b"\0\0\1\0"


@pytest.mark.parametrize(
    ("largest", "vocab_size", "width"),
    [
        (7, None, 2),
        (65498, None, 2),
        (65499, None, 4),  # a vocabulary of 65500
        (2**31 - 1, None, 4),
        (7, 65499, 2),
        (7, 65500, 4),
        (65499, 65500, 4),
    ],
)
def test_ids_of_the_rows(tmp_path: Path, largest: int, vocab_size: int | None, width: int, processes: Executor) -> None:
    """The type is decided over all shards, wherever the largest id is."""
    rows: list[dict[str, object]] = [{"input_ids": ids} for ids in ([3, 1, 2], [], [0], [largest, 0], [5], [])]
    lines = write(tmp_path, rows)
    for executor in (None, processes):
        output = tmp_path / f"out{executor is None}"
        report = pack_touch(
            tmp_path / "l.jsonl",
            output,
            datatypes="texttoken",
            samples_per_shard=1,
            vocab_size=vocab_size,
            executor=executor,
        )
        assert report == PackReport(6, 4, 0)
        assert tree(output) == packed(lines, output, 1, width)


@pytest.mark.parametrize(
    ("row", "vocab_size", "words"),
    [
        ({"input_ids": [1, -1]}, None, "token id -1"),
        ({"input_ids": [1, 2**31]}, None, "token id 2147483648 is not in a vocabulary of 2147483648"),
        ({"input_ids": [1, 2**99]}, None, "token id"),
        ({"input_ids": [7]}, 7, "token id 7 is not in a vocabulary of 7"),
        ({"input_ids": [1.0]}, None, "expected a list of token ids"),
        ({"input_ids": [True]}, None, "expected a list of token ids"),
        ({"input_ids": "1 2"}, None, "expected a list of token ids"),
        ({"text": "hello"}, None, "or a tokenizer"),
    ],
)
def test_bad_ids(tmp_path: Path, row: dict[str, object], vocab_size: int | None, words: str) -> None:
    lines = write(tmp_path, [{"input_ids": [1, 2]}, row, {"input_ids": [3]}])
    with pytest.raises(FormatError, match=f"line 2: .*{words}.*--skip-bad"):
        pack_touch(tmp_path / "l.jsonl", tmp_path / "out", datatypes="texttoken", vocab_size=vocab_size)
    assert tree(tmp_path / "out") == {}
    report = pack_touch(
        tmp_path / "l.jsonl", tmp_path / "out", datatypes="texttoken", vocab_size=vocab_size, skip_bad=True
    )
    assert report == PackReport(1, 2, 1)
    (told,) = (tmp_path / "out/skipped.jsonl").read_text().splitlines()
    assert json.loads(told)["line"] == 2
    assert json.loads(told)["text"] == lines[1].strip()
    made = tree(tmp_path / "out")
    del made["skipped.jsonl"]
    assert made == packed([lines[0], "", lines[2]], tmp_path / "out", 1000, 2)


def test_bad_texts(tmp_path: Path, tokenizer: Path) -> None:
    for row in ({"text": 3}, {"txt": "hello"}, {"text": "\ud800"}):
        (tmp_path / "l.jsonl").write_text(json.dumps(row))
        with pytest.raises(FormatError, match=r"line 1: .*text"):
            pack_touch(tmp_path / "l.jsonl", tmp_path / "out", datatypes="texttoken", tokenizer=tokenizer)


def test_tokenizers_that_are_none(tmp_path: Path) -> None:
    write(tmp_path, [{"text": "hello"}])
    with pytest.raises(NotFoundError, match=r"none\.json: no such file"):
        pack_touch(tmp_path / "l.jsonl", tmp_path / "out", datatypes="texttoken", tokenizer=tmp_path / "none.json")
    with pytest.raises(FormatError, match=r"l\.jsonl: not a tokenizer file"):
        pack_touch(tmp_path / "l.jsonl", tmp_path / "out", datatypes="texttoken", tokenizer=tmp_path / "l.jsonl")
    assert tree(tmp_path / "out") == {}


def test_without_the_library(tmp_path: Path, tokenizer: Path) -> None:
    write(tmp_path, [{"text": "hello"}])
    program = "import sys; sys.modules['tokenizers'] = None; from touchfs.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "pack", "touchnet", "l.jsonl", "out", "--datatypes", "texttoken"]
    command += ["--tokenizer", str(tokenizer), "--skip-bad"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'touchfs-shards[tokenizers]'" in done.stderr
