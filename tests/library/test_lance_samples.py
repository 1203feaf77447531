"""Rows of Lance datasets as samples: iterated, filtered, resumed from tokens, named by iterators, and converted."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from command import TOUCHFS

import touchfs
from touchfs.core.errors import MissingExtraError, SourceError
from touchfs.registry.open import known_shard, open_shard
from touchfs.tables.lance.apart import LanceApart
from touchfs.tables.lance.dataset import LanceTable

ROWS = 30


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = {
        "key": [f"k{i:02d}" for i in range(ROWS)],
        "image": [b"\x89PNG\r\n\x1a\n%d" % i for i in range(ROWS)],
        "label": [i % 3 for i in range(ROWS)],
    }
    path = tmp_path_factory.mktemp("lance") / "rows.lance"
    lance.write_dataset(pa.table(rows), path, max_rows_per_file=8)
    return path


@pytest.fixture(scope="module")
def samples(path: Path) -> Any:
    """Each opening of its own starts a process that imports Lance, which takes a second."""
    return touchfs.open(str(path))


def test_rows_are_samples(samples: Any) -> None:
    assert [sample.key for sample in samples] == [f"k{i:02d}" for i in range(ROWS)]
    assert [sample["png"] for sample in samples] == [b"\x89PNG\r\n\x1a\n%d" % i for i in range(ROWS)]
    assert [sample.json()["label"] for sample in samples] == [i % 3 for i in range(ROWS)]
    assert [sample.key for sample in samples.where("label == 1")] == [f"k{i:02d}" for i in range(1, ROWS, 3)]
    assert samples["k07"].json() == {"key": "k07", "label": 1}
    assert pickle.loads(pickle.dumps(samples))[7]["png"] == b"\x89PNG\r\n\x1a\n7"


def test_a_pass_over_rows_is_resumed(samples: Any) -> None:
    whole = [sample.key for sample in samples.shuffle(3)]
    first = samples.shuffle(3)
    passing = iter(first)
    begun = [next(passing).key for _ in range(11)]
    again = samples.shuffle(3)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert begun + [sample.key for sample in again] == whole and sorted(whole) == [f"k{i:02d}" for i in range(ROWS)]


def test_rows_are_read_without_an_index(path: Path) -> None:
    from touchfs.registry.contents import FieldContents
    from touchfs.registry.open import fingerprints
    from touchfs.shard.options import DEFAULT

    files = fingerprints(str(path))
    shard = open_shard(str(path), DEFAULT, files)
    contents = FieldContents(known_shard(str(path), files), DEFAULT.limits)
    found = []
    for sample in shard:
        content = contents.content(sample.fields["image"])
        found.append(bytes(content.read(0, content.size)))
    shard.close()
    contents.close()
    assert found == [b"\x89PNG\r\n\x1a\n%d" % i for i in range(ROWS)]


def test_rows_are_converted(path: Path, samples: Any, tmp_path: Path) -> None:
    command = [str(TOUCHFS), "convert", "--to", "tar", "--jobs", "1", str(path)]
    done = subprocess.run([*command, str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    converted = touchfs.open(str(tmp_path / "out"))
    assert [(sample.key, sample["png"]) for sample in converted] == [(sample.key, sample["png"]) for sample in samples]


def test_a_crash_of_lance_while_indexing_is_an_error(path: Path) -> None:
    apart = LanceApart(LanceTable(str(path)))
    assert apart.call("describe")[0] == ROWS
    assert apart._helper is not None
    os.kill(apart._helper._process.pid, signal.SIGKILL)
    with pytest.raises(SourceError, match="Lance was ended by signal 9 while it read the dataset"):
        apart.call("describe")
    assert apart.call("describe")[0] == ROWS
    apart.close()


def test_opening_does_not_load_lance(path: Path) -> None:
    code = (
        "import sys, touchfs; samples = touchfs.open(sys.argv[1])\n"
        "assert len(samples) == 30 and 'lance' not in sys.modules\n"
        "import os; child = os.fork()\n"
        "if not child: os._exit(samples[7]['png'] != b'\\x89PNG\\r\\n\\x1a\\n7')\n"
        "assert os.waitpid(child, 0)[1] == 0 and samples[8]['png'].endswith(b'8')"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, path], check=True, timeout=60)


def test_without_pylance_the_extra_is_named(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = shutil.copytree(path, tmp_path / "rows.lance")
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'touchfs-shards\[lance\]'"):
        LanceTable(str(unknown)).rows  # noqa: B018
