"""Names with braces as datasets of this machine: they are read, listed and mounted as a list of shards."""

import os
import subprocess
from pathlib import Path

import pytest
from command import TOUCHFS, in_one_process
from tars import write_tar
from touchnet import write_speech

import touchfs
from touchfs.core.errors import FormatError, NotFoundError, UsageError
from touchfs.indexing import open_dataset
from touchfs.node.leaf.shar import list_fields
from touchfs.registry.find import find_shards


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOUCHFS, *in_one_process(*arguments)], text=True, capture_output=True, check=False, timeout=60
    )


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the tars 000, 001 and 003."""
    monkeypatch.chdir(tmp_path)
    for number in (0, 1, 3):
        write_tar(tmp_path / f"train-{number:03}.tar", {f"{number}.txt": b"%d" % number})
    return tmp_path


@pytest.mark.parametrize("source", ["train-{000..003}.tar", "train-_OP_000..003_CL_.tar", "train-00{0..2}.tar"])
def test_a_missing_member_is_shown_and_the_others_are_read(source: str) -> None:
    states = {shard.name: shard.report for shard in open_dataset(source).shards}
    assert [name for name, report in states.items() if report] == ["train-002"]
    assert "no such shard" in states["train-002"]
    assert list(states)[:2] == ["train-000", "train-001"]


def test_members_are_in_the_order_of_the_name() -> None:
    dataset = touchfs.open("train-{003,00{1..0}}.tar")
    assert [sample.key for sample in dataset] == ["3", "1", "0"]


def test_an_existing_file_of_the_literal_name_wins(here: Path) -> None:
    write_tar(here / "train-{000,001}.tar", {"literal.txt": b"x"})
    assert [sample.key for sample in touchfs.open("train-{000,001}.tar")] == ["literal"]
    assert find_shards("train-{000,003}.tar") == ["train-000.tar", "train-003.tar"]


def test_members_are_datasets_of_any_kind(here: Path) -> None:
    write_tar(here / "en/b.tar", {"x.txt": b"x"})
    write_tar(here / "en/a.tar", {"x.txt": b"x"})
    write_speech(here / "de", [({"key": "a"}, b"ab")])
    assert find_shards("{de,en,fr}") == ["de", "en/a.tar", "en/b.tar", "fr"]


def test_names_of_which_none_exists() -> None:
    with pytest.raises(NotFoundError, match=r"none of its 4 members exists, the first is .*nope-0"):
        open_dataset("nope-{0..3}.tar")


def test_what_is_refused(here: Path) -> None:
    with pytest.raises(UsageError, match="1,000,000"):
        find_shards("{0..9}{000000..999999}.tar")
    with pytest.raises(UsageError, match=r"data\.list"):
        open_dataset(f"{{{here}/train-000,{here}/train-001}}.tar")
    with pytest.raises(UsageError, match="after the host"):
        open_dataset("s3://{a,b}/x.tar")
    with pytest.raises(UsageError, match=r"data\.list"):
        find_shards("memory{:,}//bucket/x.tar")


def test_lines_of_a_list(here: Path) -> None:
    write_speech(here / "lists/{x,y}", [({"key": "a"}, b"ab")])
    (here / "lists/data.list").write_text(f"{here}/train-{{000..001}}.tar audio\n{{x,y}} audio\nz{{1,2}} audio\n")
    beside = f"{here}/lists"
    shards = [f"{here}/train-000.tar", f"{here}/train-001.tar", f"{beside}/{{x,y}}", f"{beside}/z1", f"{beside}/z2"]
    assert find_shards("lists") == shards


@pytest.mark.parametrize("lines", ["{0..999999} audio\nx{0,1} audio\n", "x audio\n{0..1000000} audio\n"])
def test_a_list_of_too_many(here: Path, lines: str) -> None:
    (here / "data.list").write_text(lines)
    with pytest.raises(FormatError, match=r"line 2: .* 1,000,000"):
        find_shards(str(here))


def test_fields_of_a_shar(here: Path) -> None:
    fields = {"cuts": ["cuts.{0..1}.jsonl"], "recording": ["pipe:cat {a,b}", "recording._OP_1..1_CL_.tar"]}
    cuts = [f"{here}/cuts.{i}.jsonl" for i in range(2)]
    assert list_fields(fields, None) == {"cuts": cuts, "recording": ["pipe:cat {a,b}", f"{here}/recording.1.tar"]}


def test_the_index_in_place_is_where_all_members_are(here: Path) -> None:
    os.mkdir(here / "more")
    os.rename(here / "train-003.tar", here / "more/train-003.tar")
    done = run("index", "--jobs", "1", "--in-place", f"{here}/{{train-000,more/train-003}}.tar")
    assert (done.returncode, done.stderr) == (0, "")
    assert (here / ".touchfs-index").is_dir()
    assert (
        "indexed already"
        in run("index", "--jobs", "1", "--in-place", f"{here}/{{train-000,more/train-003}}.tar").stdout
    )


def test_commands_take_a_path_in_the_dataset() -> None:
    assert run("cat", "train-{000..003}.tar:by-key/3.txt").stdout == "3"
    assert run("ls", "train-{000..003}.tar:shards").stdout.split() == [f"train-00{i}/" for i in range(4)]
    assert "samples:        3" in run("info", "train-{000..003}.tar").stdout
    assert "nope-{0..3}.tar: none of its 4 members exists" in run("ls", "nope-{0..3}.tar").stderr


def test_a_mount(here: Path) -> None:
    (here / "mnt").mkdir()
    done = run("mount", "train-{000,001}.tar", "mnt")
    try:
        assert done.returncode == 0, done.stderr
        assert sorted(os.listdir("mnt/shards")) == ["train-000", "train-001"]
        assert Path("mnt/by-key/1.txt").read_bytes() == b"1"
    finally:
        run("umount", "mnt")


def test_several_names_are_the_dataset_that_braces_stand_for(here: Path) -> None:
    write_tar(here / "train-002.tar", {"2.txt": b"2"})
    tars = [f"train-{number:03}.tar" for number in range(4)]
    braces = "train-{000..003}.tar"
    for arguments in (["ls"], ["info"], ["iterate", "--format", "json", "--shuffle", "7"], ["verify", "--json"]):
        told = run(*arguments, *tars)
        assert (told.returncode, told.stderr) == (0, "")
        assert told.stdout.splitlines()[:4] == run(*arguments, braces).stdout.splitlines()[:4]
    assert run("ls", *tars[:2], f"{tars[2]}:shards").stdout.split() == [f"train-00{number}/" for number in range(3)]
    assert run("convert", *tars, "out", "--to", "tar").stdout == "out: 1 shard, 4 samples\n"
    opened = [touchfs.open(each) for each in ([here / tar for tar in tars], braces, "train-*.tar")]
    assert [[sample.key for sample in each] for each in opened] == [["0", "1", "2", "3"]] * 3
    assert [sample.key for sample in touchfs.open([tars[3], tars[0]])] == ["3", "0"]
    assert opened[0].shuffle(7).state_dict() == opened[1].shuffle(7).state_dict() == opened[2].shuffle(7).state_dict()


def test_several_names_are_mounted_at_the_last_word(here: Path) -> None:
    tars = ["./train-000.tar", str(here / "train-001.tar")]
    inodes = []
    for sources in (tars, ["train-{000,001}.tar"]):
        done = run("mount", *sources, "mnt")
        assert (done.returncode, done.stderr) == (0, "")
        try:
            files = sorted((here / "mnt/shards").rglob("*.txt"))
            inodes.append([(file.name, file.stat().st_ino) for file in files])
            if sources is tars:
                (here / "mnt/.touchfs/iterators/train").mkdir()
            assert (here / "mnt/.touchfs/iterators/train").is_dir()
        finally:
            assert run("umount", "mnt").returncode == 0
    assert inodes[0] == inodes[1] and len(inodes[0]) == 2


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["train-000.tar", "a,b.tar"], "2 names, of which some have commas or braces: write them into a data.list"),
        (["train-000.tar", "s3://b/x.tar"], "2 names, which are not all in one store: write them into a data.list"),
        (["s3://a/x.tar", "s3://b/x.tar"], "2 names, which are not all in one store: write them into a data.list"),
        ([], "no dataset is named: the list is empty"),
    ],
)
def test_names_that_are_no_dataset_together(names: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        touchfs.open(names)


def test_an_argument_that_is_missing_is_named() -> None:
    assert run("mount", "train-000.tar").stderr.startswith("touchfs mount: Missing argument 'MOUNTPOINT'.")
    assert run("mount").stderr.startswith("touchfs mount: Missing argument 'DATASET…'.")
    missing = run("ls", "dev-*.tar")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)
    assert missing.stderr.endswith("dev-*.tar: nothing here matches this pattern\n")
