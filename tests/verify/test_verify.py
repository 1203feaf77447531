"""Datasets are read as a whole and compared with their indexes and checksums."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from adopted_indexes import places, write_wds2idx
from command import TOUCHFS
from damage import flip_byte
from every_kind import OPTIONS
from seals import resealed_keys
from tars import write_tar

import touchfs
from touchfs.core.errors import FormatError
from touchfs.indexing import open_dataset
from touchfs.indexing.place import index_directory
from touchfs.shard.options import Options
from touchfs.tree import checked_view
from touchfs.tree.tree import Tree
from touchfs.verify.checksums import checksums_path, load_checksums
from touchfs.verify.job import checksum, verify
from touchfs.verify.journal import Journal
from touchfs.verify.shard import PROBLEMS_LISTED

FILES = {f"s{number}.{end}": f"{number} {end} ".encode() * 99 for number in range(6) for end in ("txt", "bin")}


def run(command, *arguments):
    """In one process, if the arguments do not say otherwise: others take a second to start."""
    jobs = () if "--jobs" in arguments else ("--jobs", "1")
    return subprocess.run([TOUCHFS, command, *jobs, *map(str, arguments)], capture_output=True, text=True, check=False)


def verdicts_of(source, options=None):
    options = options or Options()
    dataset = open_dataset(str(source), options=options)
    return list(verify(dataset, options, Journal(index_directory(), dataset), None, lambda done, total: None))


def write_checksums(source, options=None):
    options = options or Options()
    dataset = open_dataset(str(source), options=options)
    return list(checksum(dataset, options, None, lambda done, total: None, force=False))


@pytest.fixture
def tars(tmp_path):
    for name in ("a", "b", "c"):
        write_tar(tmp_path / "set" / f"{name}.tar", FILES)
    return tmp_path / "set"


def test_every_kind_of_shard_is_right_when_it_is_new(every_kind):
    for path in sorted(every_kind.iterdir()):
        options = OPTIONS.get(path.name, Options())
        written = write_checksums(path, options)
        assert [verdict.problems for verdict in written] == [[]] * len(written), path.name
        found = verdicts_of(path, options)
        assert all(verdict.checked == verdict.files > 0 and not verdict.problems for verdict in found), path.name


def test_a_changed_byte_is_found_by_its_checksum(tars):
    done = run("verify", "--write", tars)
    assert (done.returncode, done.stdout) == (
        0,
        f"36 checksums written, {3 * sum(map(len, FILES.values())):,} bytes read\n",
    )
    assert run("verify", tars).returncode == 0
    flip_byte(tars / "b.tar", 512 + 40)
    done = run("verify", tars, "--jobs", 2)
    assert done.returncode == 1
    index, first, last = done.stdout.splitlines()
    assert index == "shards/b: some of its bytes are not those that were indexed"
    assert first.startswith("shards/b/s0.txt: its 594 bytes have the checksum ")
    assert (
        last == f"3 shards, 36 files, {3 * sum(map(len, FILES.values())):,} bytes read, 36 with a checksum: 2 problems"
    )
    told = json.loads(run("verify", tars, "--json").stdout)
    assert (told["shards"], told["files"], told["files_with_checksum"], told["damaged"]) == (3, 36, 36, 2)
    assert told["problems"] == [index, first]


def test_an_index_that_does_not_fit_is_found_without_checksums(tars):
    assert run("verify", tars).stdout.endswith("0 with a checksum: no problem\n")
    flip_byte(tars / "a.tar", 0)  # a letter of the name of the first member
    done = run("verify", tars)
    assert done.returncode == 1
    assert "shards/a: its index does not fit its data: `touchfs index --force` makes it again" in done.stdout


def test_shards_with_errors_are_problems(tars):
    (tars / "d.tar").write_bytes((tars / "a.tar").read_bytes()[:700])
    done = run("verify", tars)
    assert done.returncode == 1
    assert done.stdout.startswith("shards/d: ")


def test_a_shard_that_cannot_be_read_gets_no_checksums(tmp_path):
    write_tar(tmp_path / "a.tar", FILES)
    dataset = open_dataset(str(tmp_path))
    os.truncate(tmp_path / "a.tar", 3000)
    (verdict,) = checksum(dataset, Options(), None, lambda done, total: None, force=False)
    assert verdict.damaged
    assert not os.path.exists(checksums_path(dataset.shards[0]))


def test_problems_are_counted_and_not_all_told(tmp_path):
    write_tar(tmp_path / "a.tar", {f"{n:05}.txt": b"x" * 10 for n in range(PROBLEMS_LISTED + 49)})
    write_checksums(tmp_path)
    flip_byte(tmp_path / "a.tar", *[1024 * number + 512 for number in range(PROBLEMS_LISTED + 49)])
    done = run("verify", tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == [
        "shards/a: and 50 more",
        f"1 shard, 1049 files, 10,490 bytes read, 1,049 with a checksum: {PROBLEMS_LISTED + 50} problems",
    ]


def test_an_interrupted_verification_goes_on(tars):
    dataset = open_dataset(str(tars))
    journal = Journal(index_directory(), dataset)
    begun = verify(dataset, Options(), journal, None, lambda done, total: None)
    assert next(begun).name == "a"
    begun.close()
    with open(journal.path, "ab") as file:
        file.write(b'{"name": "b", "subject": "' + dataset.shards[1].identity.encode())  # cut off by a crash
    flip_byte(tars / "a.tar", 0)
    flip_byte(tars / "b.tar", 0)
    found = verdicts_of(tars)
    assert [bool(verdict.problems) for verdict in found] == [False, True, False]
    assert not os.path.exists(journal.path)
    assert [bool(verdict.problems) for verdict in verdicts_of(tars)] == [True, True, False]


@pytest.mark.parametrize("planted", [b"[]\n", b"\xff\n", b'{"subject": {}, "name": []}\n'])
def test_a_journal_of_nonsense_is_not_used(tars, planted):
    dataset = open_dataset(str(tars))
    Path(Journal(index_directory(), dataset).path).write_bytes(planted)
    assert all(verdict.files == 12 for verdict in verdicts_of(tars))


def interrupt(source, shards):
    """Verify the first shards, and leave the journal behind."""
    dataset = open_dataset(str(source))
    begun = verify(dataset, Options(), Journal(index_directory(), dataset), None, lambda done, total: None)
    for _ in range(shards):
        next(begun)
    begun.close()
    return dataset


def test_a_resumed_verification_says_what_it_did_not_read_again(tars):
    interrupt(tars, 2)
    done = run("verify", tars)
    assert done.stdout.startswith(
        f"3 shards (2 of them by an earlier call), 36 files, {sum(map(len, FILES.values())):,} "
    )
    interrupt(tars, 2)
    assert json.loads(run("verify", tars, "--json").stdout)["shards_before"] == 2


def test_a_resumed_verification_repeats_no_problem_and_trusts_nothing_old(tars, monkeypatch):
    write_checksums(tars)
    flip_byte(tars / "a.tar", 512 + 40)
    interrupt(tars, 3)
    flip_byte(tars / "a.tar", 512 + 40)  # repaired, without a trace
    assert [(verdict.problems, verdict.before) for verdict in verdicts_of(tars)] == [([], 0), ([], 1), ([], 1)]
    dataset = interrupt(tars, 3)
    write_checksums(tars)  # are there already
    os.unlink(checksums_path(dataset.shards[2]))  # known, and now without
    assert [verdict.before for verdict in verdicts_of(tars)] == [1, 1, 0]
    interrupt(tars, 3)
    monkeypatch.setattr("touchfs.verify.journal.KEPT_SECONDS", 0)
    assert [verdict.before for verdict in verdicts_of(tars)] == [0, 0, 0]


def test_a_line_that_was_cut_off_costs_no_other(tars):
    dataset = interrupt(tars, 1)
    journal = Journal(index_directory(), dataset)
    with open(journal.path, "ab") as file:
        file.write(b'{"name": "b"')
    begun = verify(dataset, Options(), journal, None, lambda done, total: None)
    assert [next(begun).before, next(begun).before] == [1, 0]
    begun.close()
    assert len(journal.verdicts()) == 2


def test_two_verifications_may_end_together(tars):
    dataset = open_dataset(str(tars))
    one, other = (Journal(index_directory(), dataset) for _ in range(2))
    one.add(next(verify(dataset, Options(), one, None, lambda done, total: None)))
    one.remove()
    other.remove()


def test_a_damaged_index_of_keys_is_found(tars):
    dataset = open_dataset(str(tars))
    path = Path(dataset.keys.path)
    data = bytearray(path.read_bytes())
    data[-12] ^= 1
    path.write_bytes(data)
    done = run("verify", tars)
    assert done.returncode == 1
    assert f"{path}: was damaged, and is made again: check the disk" in done.stdout
    assert run("verify", tars).returncode == 0
    path.write_bytes(resealed_keys(bytes(data)))
    done = run("verify", tars)
    assert done.returncode == 1
    assert "by-key: its index does not fit the catalogs: `touchfs index --force` makes it again" in done.stdout
    assert run("index", tars, "--force").returncode == 0
    assert run("verify", tars).returncode == 0


@pytest.mark.parametrize("found_by", ["verifying", "opening without a dataset file", "opening by its size"])
def test_a_damaged_catalog_is_found(tars, found_by):
    catalog = Path(open_dataset(str(tars)).shards[1].catalog)
    flip_byte(catalog, catalog.stat().st_size // 2)
    if found_by == "opening by its size":
        os.truncate(catalog, 1000)
    elif found_by != "verifying":
        next(path for path in catalog.parent.glob("*.dataset.json") if str(tars) in path.read_text()).unlink()
    done = run("verify", tars)
    assert done.returncode == 1
    problem = "its checksum is wrong: index with --force" if found_by == "verifying" else "was damaged"
    assert f"{catalog}: {problem}" in done.stdout
    assert run("index", tars, "--force").returncode == 0
    assert run("verify", tars).returncode == 0


def test_checksums_follow_data_that_is_moved(tars):
    write_checksums(tars)
    os.rename(tars, tars.with_name("moved"))
    assert [verdict.checked for verdict in verdicts_of(tars.with_name("moved"))] == [12, 12, 12]


def test_checksums_that_cannot_be_kept_are_an_error(tars):
    run("index", tars)
    os.chmod(index_directory(), 0o777)
    try:
        for command in (["verify", "--write"], ["index"]):
            done = run(*command, tars, "--force")
            assert done.returncode == 1
            assert "others may write to this directory" in done.stderr
        assert run("verify", tars).stdout.endswith(" 0 with a checksum: no problem\n")
    finally:
        os.chmod(index_directory(), 0o700)


def test_a_verification_that_is_killed_loses_nothing(tmp_path):
    for number in range(9):
        write_tar(tmp_path / f"{number}.tar", {"x.bin": b"x" * 3000})
    dataset = open_dataset(str(tmp_path))
    code = """
import os, signal, sys
from touchfs.indexing import open_dataset
from touchfs.indexing.place import index_directory
from touchfs.shard.options import Options
from touchfs.verify.job import verify
from touchfs.verify.journal import Journal
dataset = open_dataset(sys.argv[1])
for number, _ in enumerate(verify(dataset, Options(), Journal(index_directory(), dataset), None, lambda *_: None)):
    if number == 4:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(Journal(index_directory(), dataset).verdicts()) == 5
    assert [verdict.before for verdict in verdicts_of(tmp_path)] == [1] * 5 + [0] * 4


def test_checksums_of_another_version_of_the_data_are_not_used(tars):
    write_checksums(tars)
    write_tar(tars / "a.tar", FILES | {"new.txt": b"new"})
    dataset = open_dataset(str(tars))
    assert [load_checksums(shard) is None for shard in dataset.shards] == [True, False, False]
    found = verdicts_of(tars)
    assert [verdict.checked for verdict in found] == [0, 12, 12]
    assert [verdict.problems for verdict in found] == [
        [
            "shards/a: was changed after its checksums were written: "
            "if that is right, `touchfs verify --write` writes new ones"
        ],
        [],
        [],
    ]
    assert [verdict.name for verdict in write_checksums(tars)] == ["a"]
    again = verdicts_of(tars)
    assert [(verdict.checked, verdict.problems) for verdict in again] == [(13, []), (12, []), (12, [])]


@pytest.mark.parametrize("cut", [0, 8, -1])
def test_damaged_checksums_say_so(tars, cut):
    write_checksums(tars)
    dataset = open_dataset(str(tars))
    path = Path(checksums_path(dataset.shards[0]))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(FormatError):
        load_checksums(dataset.shards[0])
    found = verdicts_of(tars)
    assert [len(verdict.problems) for verdict in found] == [1, 0, 0]
    assert str(path) in found[0].problems[0]
    assert [verdict.files for verdict in found] == [12, 12, 12]
    assert [verdict.name for verdict in write_checksums(tars)] == ["a"]
    assert [verdict.checked for verdict in verdicts_of(tars)] == [12, 12, 12]


def test_without_the_library_it_says_what_to_install(tars):
    code = "import sys; sys.modules['google_crc32c'] = None; from touchfs.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "verify", "--write", tars, "--jobs", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "touchfs: checksums need the checksum extra: `pip install 'touchfs-shards[checksum]'`\n"


@pytest.fixture
def content_of(tmp_path, monkeypatch):
    """A function that returns a content of a tree that compares files as they are read, whatever their size."""
    monkeypatch.setattr(checked_view, "WHOLE_MAX", 0)

    def content_of(path):
        tree = Tree(open_dataset(str(tmp_path / "set")), range(1, 4), verify=True)
        return tree.content(tree.resolve(path).inode)

    return content_of


def test_a_content_that_is_kept_is_not_read_after_it_was_found_damaged(tars, content_of):
    write_checksums(tars)
    size = len(FILES["s0.txt"])
    flip_byte(tars / "a.tar", 512 + size - 1)
    content = content_of("shards/a/s0.txt")
    assert bytes(content.read(0, 10)) == FILES["s0.txt"][:10]
    with pytest.raises(FormatError, match="damaged: its"):
        content.read(size - 10, 10)
    for read in (content.read, content.read_nowait):
        with pytest.raises(FormatError, match="damaged: its"):
            read(0, 10)


def test_a_content_that_is_kept_is_compared_once(tars, content_of, monkeypatch):
    write_checksums(tars)
    extend, compared = checked_view.extender(), []

    def counted(checksum, data):
        compared.append(len(data))
        return extend(checksum, data)

    monkeypatch.setattr(checked_view, "extender", lambda: counted)
    content, data = content_of("shards/a/s0.txt"), FILES["s0.txt"]
    for read in (content.read, content.read_nowait, content.read):
        assert bytes(read(0, len(data))) == data
    assert sum(compared) == len(data)


def test_the_rest_of_another_tools_index_is_compared_with_all_headers(tmp_path):
    """Indexing has read a dozen of them, and not the second one."""
    data = bytes(600_000)
    path = write_tar(tmp_path / "set" / "a.tar", {f"s{number:02}.bin": data for number in range(30)})
    listed = places(path)
    write_wds2idx(path, [listed[0], listed[1]._replace(name="other.bin"), *listed[2:]])

    def keys():
        return [sample.key for sample in touchfs.open(path)]

    assert keys()[1] == "other"
    assert "does not fit its data: `touchfs index --force` makes it again" in str(verdicts_of(path))
    assert run("index", "--force", path).returncode == 0
    assert keys()[1] == "s01"
    assert run("verify", path).returncode == 0
