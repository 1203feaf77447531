"""Every command explains itself, and what its help shows as an example works."""

import os
import re
import socket
import subprocess

import click
import pytest
from command import TOUCHFS
from interleaved_tars import make_wds_tar, mint_sample
from speech import SPEECH

from touchfs.cli.main import COMMANDS, group


def commands():
    yield (), group
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        yield (name,), command
        if isinstance(command, click.Group):
            yield from (((name, sub), found) for sub, found in command.commands.items())


def marked():
    """Those that look at all mounts of the machine would find those that other tests make and kill."""
    for names, _ in commands():
        yield pytest.param(names, marks=[pytest.mark.alone] if names in (("status",), ("doctor",)) else [])


EXAMPLE = re.compile(r"^ *Examples?:\n((?:    .*\n?)+)", re.MULTILINE)


@pytest.mark.parametrize("names", list(marked()), ids=" ".join)
def test_an_example_works(text, tmp_path, names):
    told = text(*names, "--help")
    assert text(*names, "-h") == told
    (example,) = EXAMPLE.findall(told)
    script = example.replace("/mnt/speech", "mnt").replace("s3://bucket/speech", "shards")
    if names == ("serve",):  # which needs a moment, and a port that nobody else has
        with socket.create_server(("127.0.0.1", 0)) as free:
            script = script.replace("8080", str(free.getsockname()[1]))
        script = (
            script.replace("curl", "curl -s -o /dev/null --retry 60 --retry-delay 1 --retry-connrefused") + "kill $!\n"
        )
    (tmp_path / "data.jsonl").symlink_to(SPEECH / "speech.jsonl")
    (tmp_path / "wav").symlink_to(SPEECH / "wav")
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "1.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "features.json").write_text(
        '{"image": {"type": "Image"}, "label": {"type": "ClassLabel", "names": ["cat"]}}'
    )
    make_wds_tar(tmp_path / "mint/00000.tar", [mint_sample(0)])
    if "pack" not in names:
        text("pack", "touch", "data.jsonl", "shards", cwd=tmp_path)
    if names == ("umount",):
        text("mount", "shards", "mnt", cwd=tmp_path)
    environment = os.environ | {"PATH": f"{TOUCHFS.parent}:{os.environ['PATH']}"}
    try:
        options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], check=False, **options)
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        if os.path.ismount(tmp_path / "mnt"):
            subprocess.run(["fusermount3", "-u", "-z", tmp_path / "mnt"], check=True)


def test_the_help_names_every_command_in_a_line_that_is_not_cut(text):
    listed = text("--help").partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)


def test_alone_it_shows_its_help(text):
    assert text() == text("--help")


def test_the_version(text):
    assert re.fullmatch(r"touchfs, version \d\S*", text("--version"))
