"""Lance datasets that pylance wrote, opened by version, from many threads and after a fork."""

import os
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError
from touchfs.tables.lance import open as lance_open
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.versions import manifest_version, manifests

ROWS = 500


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": [f"k{i}" for i in numbers], "image": [b"%d" % i * 9 for i in numbers], "n": list(numbers)})


@pytest.fixture
def path(tmp_path: Path) -> str:
    lance.write_dataset(rows(0, ROWS), tmp_path / "a.lance", max_rows_per_file=120)
    return str(tmp_path / "a.lance")


def test_rows_come_as_pylance_takes_them(path: str) -> None:
    table = LanceTable(path)
    wanted = [499, 0, 7, 7, 121]
    assert (table.rows, table.version, table.schema) == (ROWS, 1, lance.dataset(path).schema)
    assert table.take(wanted) == lance.dataset(path).take(wanted)
    assert table.take(wanted, ["n"]).to_pydict() == {"n": wanted}
    assert table.take([], ["n"]).to_pydict() == {"n": []}
    for row in (-1, ROWS):
        with pytest.raises(IndexError):
            table.take([0, row])
    with pytest.raises(NotFoundError, match="no column 'm'"):
        table.take([0], ["m"])


def test_a_version_stays_as_it_is(path: str) -> None:
    old = LanceTable(path)
    assert old.rows == ROWS
    lance.dataset(path).delete("n % 2 = 0")
    lance.write_dataset(rows(ROWS, 10), path, mode="append")
    new = LanceTable(path)
    assert (old.version, new.version) == (1, 3)
    assert old.take([0, 2], ["n"]).to_pydict() == {"n": [0, 2]}
    assert new.take([0, 2, new.rows - 1], ["n"]).to_pydict() == {"n": [1, 5, ROWS + 9]}


def test_names_of_manifests(path: str) -> None:
    assert manifests(path) == {1: "18446744073709551614.manifest"}
    assert manifest_version("7.manifest") == 7
    others = ("latest_version_hint.json", "x.manifest", "99999999999999999999.manifest", "1.manifest.tmp")
    assert {manifest_version(name) for name in others} == {None}


def test_many_threads_get_their_own_rows_from_few_calls(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LanceTable(path)
    table.take([0], ["n"])
    calls: list[int] = []
    take = lance.LanceDataset.take

    def counted(self: lance.LanceDataset, indices: list[int], columns: list[str] | None = None) -> pa.Table:
        calls.append(len(indices))
        return take(self, indices, columns)

    monkeypatch.setattr(lance.LanceDataset, "take", counted)
    with ThreadPoolExecutor(32) as threads:
        taken = list(threads.map(lambda row: table.take([row], ["n", "id"]).to_pylist(), range(ROWS)))
    assert taken == [[{"n": i, "id": f"k{i}"}] for i in range(ROWS)]
    assert sum(calls) == ROWS and len(calls) < ROWS


def test_an_error_is_for_those_who_asked(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = LanceTable(path)
    take = lance.LanceDataset.take

    def failing(self: lance.LanceDataset, indices: list[int], columns: list[str] | None = None) -> pa.Table:
        if 3 in indices:
            raise OSError("page of row 3, /home/rust/page.rs:1")
        return take(self, indices, columns)

    monkeypatch.setattr(lance.LanceDataset, "take", failing)

    def taken(row: int) -> object:
        try:
            return table.take([row], ["n"]).to_pydict()["n"][0]
        except SourceError as error:
            return error.message

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(taken, [i % 8 for i in range(ROWS)]))
    assert answers == ["Lance cannot read it: page of row 3" if i % 8 == 3 else i % 8 for i in range(ROWS)]


def test_a_table_is_used_after_a_fork_and_in_another_process(path: str) -> None:
    program = (
        "import os, pickle, sys\n"
        "table = pickle.loads(bytes.fromhex(sys.argv[1])); assert 'lance' not in sys.modules\n"
        "child = os.fork()\n"
        "if not child: os._exit(table.take([4], ['n']).to_pydict() != {'n': [4]})\n"
        "assert os.waitpid(child, 0)[1] == 0 and table.take([3], ['n']).to_pydict() == {'n': [3]}"
    )
    subprocess.run([sys.executable, "-c", program, pickle.dumps(LanceTable(path, 1)).hex()], check=True, timeout=60)


def test_a_fork_of_a_process_that_used_lance_gets_an_error(path: str) -> None:
    """It would crash or hang."""
    program = (
        "import os, sys, warnings; warnings.simplefilter('ignore')\n"
        "from touchfs.core.errors import SourceError\n"
        "from touchfs.tables.lance.dataset import LanceTable\n"
        "table = LanceTable(sys.argv[1]); table.take([3])\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    try: table.take([3])\n"
        "    except SourceError as error: os._exit('spawn or forkserver' not in str(error))\n"
        "    os._exit(1)\n"
        "assert os.waitpid(child, 0)[1] == 0 and table.take([3], ['n']).to_pydict() == {'n': [3]}"
    )
    subprocess.run([sys.executable, "-c", program, path], check=True, timeout=60)


def test_few_datasets_stay_open(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lance_open.DATASETS._kept, "_most", 2)
    tables = []
    for name in "bcd":
        shutil.copytree(path, tmp_path / name)
        tables.append(LanceTable(str(tmp_path / name)))
    for table in tables * 2:
        assert table.take([1], ["n"]).to_pydict() == {"n": [1]}
    assert len(lance_open.DATASETS._kept) == 2


def test_a_version_that_is_gone(path: str) -> None:
    with pytest.raises(ChangedError, match="version 9 of this Lance dataset is gone"):
        LanceTable(path, 9).rows  # noqa: B018
    old = LanceTable(path)
    assert old.version == 1
    lance.write_dataset(rows(0, 3), path, mode="overwrite")
    os.remove(os.path.join(path, "_versions", manifests(path)[1]))
    with pytest.raises(ChangedError, match="version 1"):
        old.take([0])


def test_what_is_no_dataset(path: str, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        LanceTable(str(tmp_path / "none")).rows  # noqa: B018
    manifest = os.path.join(path, "_versions", manifests(path)[1])
    Path(manifest).write_bytes(b"garbage" * 99)
    with pytest.raises((FormatError, SourceError), match="Lance cannot read it"):
        LanceTable(path).rows  # noqa: B018


def test_a_column_of_which_the_data_are_gone(path: str) -> None:
    table = LanceTable(path)
    assert table.rows == ROWS
    for file in os.listdir(os.path.join(path, "data")):
        os.truncate(os.path.join(path, "data", file), 40)
    with pytest.raises((FormatError, SourceError), match="Lance"):
        table.take([0], ["image"])


def test_nothing_is_opened_in_advance(tmp_path: Path) -> None:
    assert repr(LanceTable(str(tmp_path / "none"), 4)) == f"LanceTable('{tmp_path}/none', 4)"


def test_a_dataset_that_is_replaced_by_another_of_the_same_version(path: str, tmp_path: Path) -> None:
    old, late = LanceTable(path), LanceTable(path)
    assert old.rows == ROWS
    late.pin()
    pickled = pickle.dumps(old)
    lance.write_dataset(rows(9000, 3), tmp_path / "b.lance")
    os.rename(path, tmp_path / "moved.lance")
    os.rename(tmp_path / "b.lance", path)
    assert old.take([ROWS - 1], ["n"]).to_pydict() == {"n": [ROWS - 1]}  # of another file than before
    assert late.take([1], ["n"]).to_pydict() == {"n": [1]}  # it is open in this process
    new = LanceTable(path)
    assert (new.version, new.rows) == (1, 3)
    assert new.take([0], ["n"]).to_pydict() == {"n": [9000]}
    code = f"import pickle; from touchfs.core.errors import ChangedError\ntry: pickle.loads({pickled!r}).take([0])\n"
    code += "except ChangedError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "replaced by another one" in done.stdout


@pytest.mark.parametrize("name", ["data", "_deletions"])
def test_a_pipe_in_a_dataset_is_not_waited_for(path: str, name: str) -> None:
    lance.dataset(path).delete("n = 3")
    (file, *_) = sorted(Path(path, name).iterdir())
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FormatError, match=f"{name}/.* is no file"):
        LanceTable(path).take([0])


@pytest.mark.usefixtures("as_root")
def test_links_of_data_files_are_checked_as_all_links(path: str, tmp_path: Path, monkeypatch) -> None:
    (file, *_) = sorted(Path(path, "data").iterdir())
    target = Path(shutil.move(file, tmp_path / "elsewhere"))
    target.chmod(0o600)
    file.symlink_to(target)
    os.lchown(file, 12345, 12345)
    assert LanceTable(path).take([0], ["n"]).to_pydict() == {"n": [0]}
    lance_open.DATASETS.forget()
    monkeypatch.setenv("TOUCHFS_GUARD_LINKS", "1")
    with pytest.raises(SourceError, match="who may not read it"):
        LanceTable(path).take([0])
