"""Every command explains itself, and what its help shows as an example works."""

import os
import re
import shutil
import subprocess

import click
import pytest
from command import TOUCHFS
from interleaved_tars import make_wds_tar, mint_sample
from own_mounts import own_mounts
from ports import free_port
from speech import SPEECH

from touchfs.cli.command_group import CommandGroup
from touchfs.cli.main import COMMANDS, SECTIONS, group


def commands():
    yield (), group
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        yield (name,), command
        if isinstance(command, click.Group):
            yield from (((name, sub), found) for sub, found in command.commands.items())


EXAMPLE = re.compile(r"^ *Examples?:\n((?:    .*\n?)+)", re.MULTILINE)
# Commands whose example is a part of another's, with which it is run.
PART_OF = {
    ("demo",): (),
    ("umount",): ("mount",),
    ("iterator", "create"): ("iterator",),
    ("iterator", "token"): ("iterator", "restore"),
    ("meta", "get"): ("meta", "put"),
    ("pack", "arrow"): ("pack",),
    ("storage", "ls"): ("storage",),
}


@pytest.fixture(scope="module")
def data(text, tmp_path_factory):
    """What examples read. No two of them may change the same files, so each gets a copy."""
    place = tmp_path_factory.mktemp("examples")
    (place / "data.jsonl").symlink_to(SPEECH / "speech.jsonl")
    (place / "wav").symlink_to(SPEECH / "wav")
    (place / "images" / "cat").mkdir(parents=True)
    (place / "images" / "cat" / "1.jpg").write_bytes(b"\xff\xd8\xff")
    (place / "features.json").write_text(
        '{"image": {"type": "Image"}, "label": {"type": "ClassLabel", "names": ["cat"]}}'
    )
    make_wds_tar(place / "mint/00000.tar", [mint_sample(0)])
    text("pack", "touchnet", "data.jsonl", "shards", cwd=place)
    return place


def example_of(text, names):
    (example,) = EXAMPLE.findall(text(*names, "--help"))
    return example


@pytest.mark.parametrize(("names", "other"), PART_OF.items(), ids=" ".join)
def test_an_example_is_a_part_of_another(text, names, other):
    assert example_of(text, names) in example_of(text, other)


@pytest.mark.parametrize("names", [names for names, _ in commands() if names not in PART_OF], ids=" ".join)
def test_an_example_works(text, data, tmp_path, names):
    example = example_of(text, names)
    script = example.replace("/mnt/speech", "mnt").replace("s3://bucket/speech", "shards")
    if names == ("serve",):  # which needs a moment, and a port that nobody else has
        script = script.replace("8080", str(free_port()))
        script = (
            script.replace("curl", "curl -s -o /dev/null --retry 60 --retry-delay 1 --retry-connrefused") + "kill $!\n"
        )
    packs = "pack" in names
    shutil.copytree(data, tmp_path, symlinks=True, ignore=lambda *_: ["shards"] * packs, dirs_exist_ok=True)
    environment = os.environ | {"PATH": f"{TOUCHFS.parent}:{os.environ['PATH']}"}
    script = f"set -e -o pipefail\n{script}"
    command = ["bash", "-c", script]
    if names in (("status",), ("doctor",)):  # they look at all mounts
        command = own_mounts(f"trap 'fusermount3 -u -q -z mnt || true' EXIT\n{script}")
    try:
        options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run(command, check=False, **options)
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        if os.path.ismount(tmp_path / "mnt"):
            subprocess.run(["fusermount3", "-u", "-z", tmp_path / "mnt"], check=True)


def test_the_help_names_every_command_in_a_line_that_is_not_cut(text):
    told = text("--help")
    shown = [told.partition(f"\n{section}:\n")[2].partition("\n\n")[0].splitlines() for section in SECTIONS]
    assert [[line.split()[0] for line in lines] for lines in shown] == [list(names) for names in SECTIONS.values()]
    listed = [line for lines in shown for line in lines]
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)
    assert len({line.index(COMMANDS[line.split()[0]]) for line in listed}) == 1, "summaries begin in one column"


def test_summaries_are_those_of_the_commands():
    """The group has them in a table, and imports no command: help and completion are what click makes of commands."""
    for name, summary in COMMANDS.items():
        assert summary == group.get_command(click.Context(group), name).get_short_help_str(1000)
    context = click.Context(group, info_name="touchfs")
    for width in (40, 80):  # summaries are cut in a narrow terminal
        listed, expected = click.HelpFormatter(width=width), click.HelpFormatter(width=width)
        group.format_commands(context, listed)
        click.Group.format_commands(group, context, expected)
        lines = [line for line in listed.getvalue().splitlines() if line.startswith("  ")]
        assert lines == expected.getvalue().splitlines()[1:]
    for typed in ("", "i", "ls", "-"):
        listed, expected = (
            [(item.value, item.type, item.help) for item in complete(context, typed)]
            for complete in (group.shell_complete, lambda *typed: click.Group.shell_complete(group, *typed))
        )
        assert listed == expected


@pytest.mark.parametrize("names", ["ls", "index", "mount", "pack lance", "iterator token", "convert"])
def test_options_that_commands_share_are_one_line_of_the_help(text, names):
    """`--help-all` shows all of them, group by group; `--help` names the groups."""
    short, whole = (text(*names.split(), option) for option in ("--help", "--help-all"))
    *_, line = re.findall(rf"^touchfs {names} --help-all also shows: (.+)$", short, re.MULTILINE)
    headings = re.findall(r"^([A-Z].*):$", whole, re.MULTILINE)
    for title in line.split(", "):
        assert title[0].upper() + title[1:] in headings
    listed, all_listed = (set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", each, re.MULTILINE)) for each in (short, whole))
    assert "--storage-option" in all_listed - listed
    assert listed < all_listed


def test_every_option_is_in_the_help():
    for names, command in commands():
        context = click.Context(command, info_name=" ".join(names))
        context.meta["touchfs.help_all"] = True
        told = command.get_help(context)
        hidden = [
            option.opts[-1]
            for option in command.params
            if isinstance(option, click.Option) and not option.hidden and option.opts[-1] not in told
        ]
        assert hidden == [], names


def test_errors_of_data_advise_options_that_each_command_has():
    """Where remote data are, there is the scratch store, of which errors name the options."""
    for names, command in commands():
        options = {each for option in command.params for each in option.opts}
        if "--storage-option" in options:
            assert {"--scratch-dir", "--scratch-size", "--lower-scratch-dir", "--trust"} <= options, names


def test_the_kind_of_a_table_shows_only_its_options(text):
    assert not re.findall("--payload|--compression|--shard-size", text("pack", "lance", "--help-all"))
    assert not re.findall("--payload|arrow, parquet:", text("pack", "parquet", "--help-all"))
    assert "--payload" in text("pack", "arrow", "--help-all")


def test_h_is_help(text):
    assert text("iterator", "next", "-h") == text("iterator", "next", "--help")
    whole = click.Context(group, **group.context_settings)
    for names, command in commands():
        context = click.Context(command, whole, **command.context_settings)
        is_ls = names == ("ls",)  # whose -h is that of ls(1)
        assert set(command.get_help_option_names(context)) == ({"--help"} if is_ls else {"-h", "--help"}), names


def test_alone_it_shows_its_help(text):
    assert text() == text("--help")


@pytest.mark.parametrize("names", [names for names, each in commands() if names and type(each) is CommandGroup])
def test_a_group_alone_shows_its_help(text, touchfs, names):
    done = touchfs(*names)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", text(*names, "--help") + "\n")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["parkett"], "touchfs: No such command 'parkett'. Try `touchfs --help`."),
        (["mont"], "touchfs: No such command 'mont'. Did you mean 'mount' or 'umount'? Try `touchfs --help`."),
        (
            ["pack", "parkett"],
            "touchfs pack: No such command 'parkett'. Did you mean 'parquet'? Try `touchfs pack --help`.",
        ),
        (
            ["iterator", "nxt"],
            "touchfs iterator: No such command 'nxt'. Did you mean 'next'? Try `touchfs iterator --help`.",
        ),
    ],
)
def test_the_nearest_commands_are_named(touchfs, typed, answer):
    done = touchfs(*typed)
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", f"{answer}\n")


@pytest.mark.parametrize(
    ("typed", "name", "now"),
    [
        (["stats", "mnt", "--watch"], "touchfs stats", "touchfs status --stats mnt --watch"),
        (["checksum", "my data"], "touchfs checksum", "touchfs verify --write 'my data'"),
        (["completion", "bash"], "touchfs completion", "touchfs setup completion bash"),
        (["man", "pages"], "touchfs man", "touchfs setup man pages"),
        (["install-helper"], "touchfs install-helper", "touchfs setup helper"),
        (["pack", "touch", "--help"], "touchfs pack touch", "touchfs pack touchnet --help"),
    ],
)
def test_an_old_name_tells_the_new_one(touchfs, typed, name, now):
    done = touchfs(*typed)
    told = f"touchfs: `{name}` has another name now: {now}\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", told)


def test_the_version(text):
    assert re.fullmatch(r"touchfs, version \d\S*", text("--version"))
